"""A run in an object store: its parsers, and every command that reads or removes what it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from crawlproj import checks
from crawlproj.config import load_config
from crawlproj.console import load_command, parser_of
from crawlproj.errors import EXIT_STORE, BadSetting, StoreUnavailable
from crawlproj.model.records import Page
from crawlproj.model.run import RunPaths
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.overview import overview_of
from crawlproj.storage import read_pages
from crawlproj.storage.aside import leftovers, remove_stored, set_aside, set_aside_others
from crawlproj.storage.browse import PageFilter, browse, find_page
from crawlproj.storage.objects import store_at
from crawlproj.storage.places import places_of
from crawlproj.supervisor.progress import room_lines
from tests.patience import PATIENCE_S
from tests.stores import BUCKET, FaultyProxy, answer

RUN = "web"
Typed = Callable[..., Awaitable[tuple[int, str, str]]]
URLS = ["http://a.test/0", "http://a.test/1"]
REFUSES = answer("403 Forbidden", "AccessDenied")


@pytest.fixture
def store(s3: FaultyProxy) -> str:
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, RUN, partitions=4)


async def push(client: RedisClient) -> None:
    for url in URLS:
        page = Page(url, RUN, "a.test", 0, 200, 0, 1, {"content-type": "text/html"}, b"<p>some text")
        page.items = [f'{{"from": "{url}"}}']
        await client.command("RPUSH", keys.pages(RUN), pack(page))


def parser_on(run: Run, data: Path, store: str, name: str = "p", *, is_over: bool = True) -> Parser:
    async def over() -> bool:
        return is_over

    config = load_config({"CRAWL_DATA": str(data), "CRAWL_STORE": store, "PAGE_STORE": "parquet,warc"})
    return Parser(run, config, name, over)


@pytest.fixture
async def stored(run: Run, client: RedisClient, store: str, tmp_path: Path) -> str:
    """The address of a store with two pages and two items; its run has its directory in *tmp_path*."""
    await push(client)
    await parser_on(run, tmp_path, store).run()
    return store


@pytest.fixture
def typed(redis_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Runs a command as a person types it: exit code, output, errors."""

    async def run(name: str, *arguments: str) -> tuple[int, str, str]:
        command = load_command(name)
        opts, args = parser_of(command).parse_known_args(arguments)
        command.settings = {"REDIS_URL": redis_url, "CRAWL_DATA": str(tmp_path)}
        capfd.readouterr()
        code = await command.work(args, opts)  # type: ignore[attr-defined]
        return int(code or 0), *capfd.readouterr()

    return run


def names(store: str) -> list[str]:
    return sorted(path.name for path in store_at(store).path("runs").iterdir())


@pytest.mark.parametrize("where", [(), ("--data", "STORE")], ids=["here", "anywhere"])
async def test_every_command_reads_the_store_in_place(
    stored: str, typed: Typed, tmp_path: Path, where: tuple[str, ...]
) -> None:
    where = tuple(one.replace("STORE", stored) for one in where)

    rows = await typed("pages", "--format", "jsonl", "--columns", "url", *where)
    counted = await typed("pages", "--query", "SELECT count(DISTINCT url) AS n FROM pages", *where)
    items = await typed("items", "--count", *where)
    checked = await typed("pages", "--check", *where)
    exported = await typed("pages", "--output", str(tmp_path / "all.warc"), *where)
    reported = await typed("report", "-o", str(tmp_path / "report.html"), *where)

    assert rows[1:] == ('{"url":"http://a.test/0"}\n{"url":"http://a.test/1"}\n', "")
    assert counted[1].split()[-1] == "2"
    assert items == (0, "2\n", "")
    assert checked[:2] == (0, "3 files match what Redis recorded for 1 segments.\nNothing is missing.\n")
    assert exported == (0, "", "")
    assert (tmp_path / "all.warc").read_bytes().count(b"WARC-Type: response") == 2
    assert "2 pages of run web" in reported[1]


async def test_the_check_names_a_damaged_object(stored: str, typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"bad")
    [page] = (path for path in (store_at(stored).path("runs/web/pages")).iterdir() if "parquet" in path.name)
    await store_at(stored).put(page.key, tmp_path / "bad")

    code, out, _ = await typed("pages", "--check")

    assert code == 1
    assert f"damaged: {page}: 3 bytes, recorded were" in out


async def test_the_web_page_shows_pages_of_a_store(stored: str, tmp_path: Path) -> None:
    pages = places_of(RunPaths(tmp_path, RUN))[0].pages

    found = browse(pages, PageFilter(text="some text"), 10)

    assert [line["url"] for line in found.lines] == URLS[::-1]
    page = find_page(pages, found.lines[0]["id"])
    assert page is not None
    assert page["text"] == "some text"


async def test_gathering_copies_the_store_to_this_disk(stored: str, typed: Typed, tmp_path: Path) -> None:
    code, out, err = await typed("gather")

    assert (code, err) == (0, "")
    assert f"{stored}: 3 files" in out
    assert sorted(row["url"] for row in read_pages(tmp_path / "runs" / RUN)) == URLS
    # Both are read, each segment once.
    _, out, _ = await typed("pages", "--format", "jsonl", "--columns", "url")
    assert out.count("http://") == 2


async def test_a_deleted_run_is_set_aside_in_its_store(stored: str, tmp_path: Path) -> None:
    kept = set_aside(RunPaths(tmp_path, RUN))

    assert kept is not None
    assert names(stored) == [kept.run]
    assert [row["url"] for row in read_pages(f"{stored}/runs/{kept.run}")] == URLS
    assert [row["url"] for row in read_pages(places_of(kept)[0].directory)] == URLS
    for place in leftovers(tmp_path, RUN):
        remove_stored(place)
    assert not store_at(stored).path("runs").is_dir()


async def test_a_run_is_not_deleted_while_its_store_refuses(
    stored: str, run: Run, typed: Typed, s3: FaultyProxy, tmp_path: Path
) -> None:
    s3.answer = REFUSES
    with pytest.raises(StoreUnavailable, match="AccessDenied"):
        await typed("runs", "--delete", RUN, "--pages", "--yes")
    s3.mend()
    assert len(list(read_pages(f"{stored}/runs/{RUN}"))) == 2

    code, out, _ = await typed("runs", "--delete", RUN, "--pages", "--yes")

    assert (code, out) == (0, f"deleted run {RUN} and its 3 page files\n")
    assert await typed("runs") == (0, "no runs\n", "")


async def test_only_the_segments_of_earlier_runs_are_set_aside(stored: str, run: Run, tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, RUN)

    assert set_aside_others(paths, run.created_ms) is None
    earlier = set_aside_others(paths, run.created_ms + 1)

    assert earlier is not None
    assert [row["url"] for row in read_pages(places_of(earlier)[0].directory)] == URLS
    assert places_of(paths)[0].data == store_at(stored).path()


async def test_a_parser_returns_its_pages_while_the_store_refuses_and_stores_them_once_afterwards(
    run: Run,
    client: RedisClient,
    store: str,
    s3: FaultyProxy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await push(client)
    s3.answer = REFUSES
    parser = parser_on(run, tmp_path, store)
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(parser.run())
        async with asyncio.timeout(PATIENCE_S):
            while not (said := (await overview_of(run))["storage_waits"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        queued = await PageQueue(client, RUN).length()
        asked = s3.connections
        async with asyncio.timeout(PATIENCE_S):
            while s3.connections < asked + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        s3.mend()
        await running

    assert said == (
        f"Cannot use the store {store}: it answers AccessDenied. "
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL."
    )
    assert room_lines({"storage_waits": said}) == [f"pages cannot be stored, parsers wait: {said}"]
    assert queued == 2
    assert caplog.text.count("pages cannot be stored, waiting") == 1
    assert "not-a-secret" not in caplog.text
    assert [row["url"] for row in read_pages(f"{store}/runs/{RUN}")] == URLS
    assert (await overview_of(run))["storage_waits"] == ""


async def test_a_parser_that_died_before_its_record_leaves_nothing_in_the_store(
    run: Run, client: RedisClient, stored: str, tmp_path: Path
) -> None:
    left = store_at(stored)
    (tmp_path / "half").write_bytes(b"half")
    await left.put(f"runs/{RUN}/open/pages/dead-r{run.created_ms:x}-000001.parquet", tmp_path / "half")

    await parser_on(run, tmp_path, stored, "q").run()

    assert await left.names(f"runs/{RUN}/open/pages") == []
    assert [row["url"] for row in read_pages(f"{stored}/runs/{RUN}")] == URLS


def test_the_check_before_a_run_says_in_one_line_why_a_store_cannot_be_written(
    store: str, s3: FaultyProxy
) -> None:
    config = load_config({"CRAWL_STORE": store})
    assert checks.store_problem(config, RUN) is None

    s3.answer = REFUSES
    problem = checks.store_problem(config, RUN)

    assert problem is not None
    assert (problem.field, problem.exit_code) == ("CRAWL_STORE", EXIT_STORE)
    assert "it answers AccessDenied. Check AWS_" in str(problem)
    assert checks.store_problem(load_config({}), RUN) is None


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("/srv/pages", "does not begin with s3://"),
        ("http://bucket/x", "does not begin with s3://"),
        ("s3://key:secret@bucket/x", "has more than a bucket and a prefix"),
        ("s3://", "names no bucket"),
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused_and_not_repeated(
    address: str, wrong: str
) -> None:
    with pytest.raises(BadSetting, match=f"CRAWL_STORE {wrong}") as error:
        load_config({"CRAWL_STORE": address})

    assert "secret@" not in str(error.value)
