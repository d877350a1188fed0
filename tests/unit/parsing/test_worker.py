from __future__ import annotations

import asyncio
import gzip
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from crawlproj.config import load_config
from crawlproj.frontier.frontier import Admitted, Frontier
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Page
from crawlproj.model.run import RunPaths
from crawlproj.model.urls import domain_of
from crawlproj.pages.deadletters import DeadLetters
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue, read_segments
from crawlproj.parsing.names import new_parser_name
from crawlproj.parsing.signals import run_until_signal
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.answers import ScriptError
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.storage import read_pages
from crawlproj.storage.segments import unfinished
from tests.powercut import PowerCut
from tests.waiting import lanes_of

pytestmark = pytest.mark.usefixtures("quick_parsers")

RUN = "web"
PARTITIONS = 4
Make = Callable[..., Parser]


def a_page(url: str, body: str = "", *, depth: int = 0, status: int = 200, **more: object) -> bytes:
    page = Page(
        url,
        RUN,
        domain_of(url),
        depth,
        status,
        1_700_000_000_123,
        12,
        {"content-type": "text/html"},
        body.encode(),
    )
    for name, value in more.items():
        setattr(page, name, value)
    return pack(page)


@pytest.fixture
def make(client: RedisClient, tmp_path: Path) -> Make:
    """Makes parsers that end when the queue is empty."""

    def make(
        name: str = "p-1",
        *,
        client: RedisClient = client,
        is_over: bool = True,
        clock: Callable[[], float] | None = None,
        **settings: object,
    ) -> Parser:
        async def over() -> bool:
            return is_over

        more = {"clock": clock} if clock else {}
        # No seed was admitted, so no site is known.
        defaults = {"CRAWL_PARTITIONS": PARTITIONS, "CRAWL_DATA": str(tmp_path), "CRAWL_SCOPE": "everything"}
        return Parser(
            Run(client, RUN, PARTITIONS),
            load_config(defaults | settings),
            name,
            over,
            **more,
        )

    return make


async def push(client: RedisClient, *pages: bytes) -> None:
    await client.command("RPUSH", keys.pages(RUN), *pages)


async def waiting(client: RedisClient, domain: str) -> list[bytes]:
    lanes = await lanes_of(client, RUN, partition_of(domain, PARTITIONS), domain)
    return [entry.encode() for entry in lanes[1]]


def stored(tmp_path: Path) -> list[str]:
    return [row["url"] for row in read_pages(RunPaths(tmp_path, RUN).pages)]


async def test_pages_are_stored_and_their_links_wait_in_the_frontier(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    body = "<title>T</title><meta property=og:site_name content='A &amp; B'>"
    body += "<meta property=article:published_time content='2020-01-05T10:20:00+02:00'>"
    body += "<body>word <a href='/x'>x</a> <a href='http://b.test/'>b</a>"
    await push(
        client, a_page("http://a.test/", body, depth=2, shard=3, attempt=1, redirected_from="http://c.test/")
    )

    await make().run()

    [row] = read_pages(RunPaths(tmp_path, RUN).pages)
    assert row.pop("content_hash")
    assert row.pop("simhash")
    assert row == {
        "url": "http://a.test/", "final_url": "http://a.test/", "redirected_from": "http://c.test/",
        "canonical_url": None, "domain": "a.test", "depth": 2, "status": 200,
        "fetched_at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), "latency_ms": 12,
        "content_type": "text/html", "charset": "utf-8", "language": None, "title": "T",
        "description": None, "text": "word x b", "text_source": "main", "full_text": None,
        "headings": None, "published": datetime(2020, 1, 5, 8, 20, tzinfo=UTC), "modified": None,
        "author": None, "site_name": "A & B", "kind": None, "image": None, "paywalled": None,
        "links": 2, "link_urls": None,
        "body_bytes": len(body), "truncated": False, "shard": 3, "attempt": 1,
        "error": None, "fields": None,
    }  # fmt: skip
    assert await waiting(client, "a.test") == [b"3 0 h/x"]
    assert await waiting(client, "b.test") == [b"3 0 h/"]


async def test_nothing_is_held_when_a_parser_has_ended(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    await push(client, *(a_page(f"http://a.test/{number}") for number in range(10)))

    await make(CRAWL_PARSE_BATCH=3).run()

    assert len(stored(tmp_path)) == 10
    assert (await Run(client, RUN, PARTITIONS).read_counters()).unstored == 0
    assert await PageQueue(client, RUN).parsers() == set()
    assert await client.command("HGET", keys.page_counters(RUN), "stored") == b"10"


async def test_segments_hold_no_more_pages_than_they_may_by_a_batch(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    await push(client, *(a_page(f"http://a.test/{number}") for number in range(10)))

    await make(CRAWL_PARSE_BATCH=2, CRAWL_SEGMENT_PAGES=4).run()

    recorded = await read_segments(client, RUN)
    assert sorted(record.pages for record in recorded.values()) == [2, 4, 4]
    assert len(list(RunPaths(tmp_path, RUN).pages.glob("*.parquet"))) == 3


async def test_a_segment_is_committed_when_it_is_old(client: RedisClient, make: Make) -> None:
    await push(client, *(a_page(f"http://a.test/{number}") for number in range(3)))
    ticks = iter(range(0, 10**9, 1))

    await make(CRAWL_PARSE_BATCH=1, CRAWL_SEGMENT_SECONDS=0.5, clock=lambda: float(next(ticks))).run()

    assert [record.pages for record in (await read_segments(client, RUN)).values()] == [1] * 3


@pytest.mark.parametrize(("limit", "entries"), [(0, [b"4 0 h/x"]), (4, [b"4 0 h/x"]), (3, [])])
async def test_links_deeper_than_the_limit_are_not_followed(
    client: RedisClient, make: Make, limit: int, entries: list[bytes]
) -> None:
    await push(client, a_page("http://a.test/", "<a href='/x'>x</a>", depth=3))

    await make(DEPTH_LIMIT=limit).run()

    assert await waiting(client, "a.test") == entries


async def test_a_link_at_two_depths_is_admitted_at_the_smaller(client: RedisClient, make: Make) -> None:
    await push(
        client,
        *(
            a_page(f"http://b.test/{depth}", "<a href='http://a.test/'>x</a>", depth=depth)
            for depth in (5, 1, 7)
        ),
    )

    await make().run()

    assert await waiting(client, "a.test") == [b"2 0 h/"]


REFRESH = "<meta http-equiv=refresh content='{delay_s};url={target}'><a href='{target}'>here</a>"


async def test_where_a_page_refreshes_to_waits_as_where_a_server_redirects_to(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    body = REFRESH.format(delay_s=0, target="/x")
    await push(client, a_page("http://a.test/", body, depth=2, hops=1))

    await make(DEPTH_LIMIT=2).run()

    assert await waiting(client, "a.test") == [b'2 0 h/x {"hops":2,"from":"http://a.test/"}']
    assert stored(tmp_path) == ["http://a.test/"]


async def test_a_refresh_that_takes_long_waits_as_a_link(client: RedisClient, make: Make) -> None:
    await push(client, a_page("http://a.test/", REFRESH.format(delay_s=60, target="/x"), depth=2))

    await make().run()

    assert await waiting(client, "a.test") == [b"3 0 h/x"]


async def test_refreshes_end_where_redirects_do(client: RedisClient, make: Make) -> None:
    body = "<meta http-equiv=refresh content='0;url=/{}'>"
    last = a_page("http://a.test/5", body.format(6), hops=5)
    await push(client, a_page("http://a.test/4", body.format(5), hops=4), last)

    await make().run()

    assert await waiting(client, "a.test") == [b'0 0 h/5 {"hops":5,"from":"http://a.test/4"}']
    assert await client.command("HGET", keys.page_counters(RUN), "filtered:redirects") == b"1"


async def test_a_refresh_leaves_the_scope_only_from_a_seed(client: RedisClient, make: Make) -> None:
    for depth in (0, 1):
        body = REFRESH.format(delay_s=0, target=f"http://b{depth}.test/")
        await push(client, a_page(f"http://a.test/{depth}", body, depth=depth))

    await make(CRAWL_SCOPE="domain").run()

    assert await waiting(client, "b0.test") == [b'0 0 h/ {"hops":1,"from":"http://a.test/0"}']
    assert await waiting(client, "b1.test") == []


async def test_redirects_and_failures_have_a_row_and_no_links(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    body = "<a href='/x'>x</a>"
    await push(
        client,
        a_page("http://a.test/1", body, status=302),
        a_page("http://a.test/2", body, status=404),
        a_page("http://a.test/3", "", status=0, error="timeout"),
    )

    await make().run()

    rows = list(read_pages(RunPaths(tmp_path, RUN).pages))
    assert [(row["status"], row["text"], row["error"]) for row in rows] == [
        (302, None, None), (404, None, None), (0, None, "timeout")
    ]  # fmt: skip
    assert await waiting(client, "a.test") == []


def a_sitemap(root: str, *locs: str, level: int = 1, depth: int = 0) -> bytes:
    body = f"<{root}>" + "".join(f"<loc>{loc}</loc>" for loc in locs)
    return a_page("http://a.test/map.xml", body, depth=depth, sitemap_level=level)


async def test_the_urls_of_a_sitemap_have_the_depth_of_links_on_the_front_page(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    await push(client, a_sitemap("urlset", "http://a.test/1", "http://b.test/", "http://a.test/2", depth=7))

    await make(DEPTH_LIMIT=1).run()

    assert await waiting(client, "a.test") == [b"1 0 h/1", b"1 0 h/2"]
    assert await waiting(client, "b.test") == []
    [row] = read_pages(RunPaths(tmp_path, RUN).pages)
    assert (row["text"], row["links"], row["error"], row["content_type"]) == (None, 2, None, "text/html")


@pytest.mark.parametrize(
    ("level", "entries"),
    [(1, [b'0 0 h/one.xml {"sitemap":2}']), (2, [b'0 0 h/one.xml {"sitemap":3}']), (3, [])],
)
async def test_sitemaps_named_by_a_sitemap_are_fetched_as_such_and_three_deep_at_most(
    client: RedisClient, make: Make, level: int, entries: list[bytes]
) -> None:
    await push(client, a_sitemap("sitemapindex", "http://a.test/one.xml", level=level))

    await make().run()

    assert await waiting(client, "a.test") == entries


async def test_sitemaps_together_do_not_fill_the_memory_of_a_parser(
    client: RedisClient, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproj.parsing.outlinks._MOST_CANDIDATES", 10)
    await push(
        client,
        *(a_sitemap("urlset", *(f"http://a.test/{n}" for n in range(at, at + 8))) for at in (0, 8, 16, 24)),
    )
    parser = make()
    at_once: list[int] = []
    admit = parser._outlinks._frontier.admit

    async def count(candidates: Iterable[Candidate], **options: bool) -> Admitted:
        listed = list(candidates)
        at_once.append(len(listed))
        return await admit(listed, **options)

    monkeypatch.setattr(parser._outlinks._frontier, "admit", count)

    await parser.run()

    assert at_once == [16, 16]
    assert len(await waiting(client, "a.test")) == 32


async def test_a_parser_has_all_its_connections_when_its_first_page_comes(
    client: RedisClient, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser, admit, connections = make(), Frontier.admit, []

    async def count() -> None:
        connections.append((await client.command("CLIENT", "LIST")).count(b"\n"))

    async def count_and_admit(self: Frontier, candidates: Iterable[Candidate], **options: bool) -> Admitted:
        await count()
        return await admit(self, candidates, **options)

    async def count_and_ask() -> bool:
        await count()
        return len(connections) == 3

    monkeypatch.setattr(Frontier, "admit", count_and_admit)
    monkeypatch.setattr(parser, "_is_over", count_and_ask)
    await push(client, a_page("http://a.test/", "<a href='/x'>x</a>"), a_page("http://a.test/2"))

    await parser.run()

    # With the first page, when there was none for the first time, and after waiting for more.
    assert connections == [connections[0]] * 3


async def test_the_body_of_a_sitemap_is_not_kept(client: RedisClient, make: Make, tmp_path: Path) -> None:
    await push(client, a_sitemap("urlset", "http://a.test/1"))

    await make(PAGE_STORE="warc").run()

    [warc] = RunPaths(tmp_path, RUN).pages.glob("*.warc.gz")
    assert b"<loc>" not in gzip.decompress(warc.read_bytes())
    assert [(row["url"], row["links"]) for row in read_pages(RunPaths(tmp_path, RUN).pages)] == [
        ("http://a.test/map.xml", 1)
    ]


async def test_no_format_stores_a_word_of_a_page_that_asks_not_to_be_indexed(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    body = "<meta name=robots content=noindex><title>secret</title>secret <a href='/x'>x</a>"
    await push(client, a_page("http://a.test/", body))

    await make(PAGE_STORE="parquet,jsonl,warc").run()

    rows = list(read_pages(RunPaths(tmp_path, RUN).pages))
    assert rows[0]["body_bytes"] == len(body)
    assert {(row["text"], row["title"], row["links"], row["error"]) for row in rows} == {
        (None, None, 1, "noindex")
    }
    [warc] = RunPaths(tmp_path, RUN).pages.glob("*.warc.gz")
    assert b"secret" not in gzip.decompress(warc.read_bytes())
    assert await waiting(client, "a.test") == [b"1 0 h/x"]


async def test_a_page_of_an_unwanted_type_has_a_row_without_text_that_is_not_cut(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    await push(client, a_page("http://a.test/x", headers={"Content-Type": "image/png"}))

    await make().run()

    [row] = read_pages(RunPaths(tmp_path, RUN).pages)
    assert (row["content_type"], row["text"], row["body_bytes"]) == ("image/png", None, 0)
    assert (row["truncated"], row["error"], row["content_hash"]) == (False, None, None)


async def test_pages_that_cannot_be_read_become_dead_letters_and_stop_nothing(
    client: RedisClient, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(html: bytes, config: object) -> NoReturn:
        raise RuntimeError("too deep")

    monkeypatch.setattr("crawlproj.parsing.extract.read_html", burst)
    good = pack(
        Page("http://a.test/good", RUN, "a.test", 0, 200, 0, 0, {"content-type": "text/plain"}, b"word")
    )
    raw = a_page("http://a.test/bad", "bad")
    await push(client, raw, b"no envelope", good)

    await make().run()

    assert [row["url"] for row in read_pages(RunPaths(tmp_path, RUN).pages)] == ["http://a.test/good"]
    letters = DeadLetters(client, RUN, RunPaths(tmp_path, RUN).deadletters)
    damaged, bad = sorted(await letters.list(), key=lambda letter: letter.url)
    assert (bad.url, bad.error) == ("http://a.test/bad", "RuntimeError: too deep")
    assert await letters.envelope(bad.page) == raw
    assert damaged.error.startswith("BadEnvelope: page record begins with")


async def test_a_stopped_parser_commits_what_it_has_and_leaves(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    await push(client, a_page("http://a.test/"))
    parser = make(is_over=False, CRAWL_SEGMENT_SECONDS=3600)
    running = asyncio.create_task(run_until_signal(parser, 10))
    while await PageQueue(client, RUN).length():  # noqa: ASYNC110
        await asyncio.sleep(0.01)

    os.kill(os.getpid(), signal.SIGTERM)
    await running

    assert stored(tmp_path) == ["http://a.test/"]
    assert unfinished(RunPaths(tmp_path, RUN).pages) == []
    assert await PageQueue(client, RUN).parsers() == set()


async def test_pages_of_a_dead_parser_are_parsed_by_the_next(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    await push(client, a_page("http://a.test/1"), a_page("http://a.test/2"))
    dead = PageQueue(client, RUN)
    await dead.heartbeat("dead-1", 0)
    await dead.take("dead-1", 1)
    RunPaths(tmp_path, RUN).pages.mkdir(parents=True)
    (RunPaths(tmp_path, RUN).pages / "dead-1-000001.parquet.part").write_bytes(b"{half")

    await make().run()

    assert stored(tmp_path) == ["http://a.test/1", "http://a.test/2"]
    assert unfinished(RunPaths(tmp_path, RUN).pages) == []


async def test_a_parser_whose_process_is_gone_is_dead_at_once(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    await push(client, a_page("http://a.test/1"))
    dead, here = PageQueue(client, RUN), ProcessName.of_this()
    gone = replace(here, started="another start")
    await dead.heartbeat("dead-1", await dead.now_ms(), gone)
    await dead.take("dead-1", 1)

    await make().run()

    assert stored(tmp_path) == ["http://a.test/1"]


async def test_a_parser_whose_pages_were_reclaimed_discards_them_and_continues(
    client: RedisClient, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await push(client, *(a_page(f"http://a.test/{number}") for number in range(4)))
    thief = PageQueue(client, RUN)
    parser = make(CRAWL_PARSE_BATCH=2, CRAWL_SEGMENT_SECONDS=3600)
    steal = parser._parse

    async def parse_then_be_robbed(pages: list[bytes]) -> None:
        parser._parse = steal  # type: ignore[method-assign]
        await steal(pages)
        assert await thief.reclaim_dead(await thief.now_ms() + 60_000, 30_000) == {"p-1": 2}

    parser._parse = parse_then_be_robbed  # type: ignore[method-assign]

    await parser.run()

    assert stored(tmp_path) == [f"http://a.test/{number}" for number in range(4)]
    assert "reclaimed" in caplog.text
    assert unfinished(RunPaths(tmp_path, RUN).pages) == []


async def test_a_parser_that_cannot_clear_up_waits_until_it_can(
    client: RedisClient, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await push(client, a_page("http://a.test/1"))
    # A directory: even root cannot unlink it.
    left = RunPaths(tmp_path, RUN).pages / "dead-1-000001.parquet.part"
    left.mkdir(parents=True)
    others = PageQueue(client, RUN)

    running = asyncio.create_task(make().run())
    while "Cannot clean up" not in caplog.text:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await others.heartbeat("dead-2", 0)
    while "dead-2" in await others.parsers():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    waits = not running.done() and await others.length() == 1
    left.rmdir()
    await running

    assert waits
    assert stored(tmp_path) == ["http://a.test/1"]
    assert sum(record.levelname == "ERROR" for record in caplog.records) == 1


@pytest.fixture
async def other_door(redis_url: str, tmp_path: Path) -> AsyncIterator[RedisClient]:
    opened = await RedisClient.open(url=redis_url, data_dir=tmp_path, wait_s=10)
    yield opened
    await opened.close()


@pytest.mark.parametrize("step", ["admit", "append", "commit", "committed"])
async def test_a_parser_that_dies_at_any_step_loses_no_page_and_stores_none_twice(
    client: RedisClient,
    other_door: RedisClient,
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    await push(client, *(a_page(f"http://a.test/{n}", f"<a href='/from-{n}'>x</a>") for n in range(6)))
    dying = make("dying-1", client=other_door, CRAWL_PARSE_BATCH=2, CRAWL_SEGMENT_PAGES=4)
    calls = 0

    def die_the_second_time() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise PowerCut

    if step == "admit":
        read = dying._reading.read
        monkeypatch.setattr(dying._reading, "read", lambda *page: (die_the_second_time(), read(*page))[1])
    elif step == "append":
        append = dying._intakes[None].segment.append
        monkeypatch.setattr(
            dying._intakes[None].segment, "append", lambda *row: (append(*row), die_the_second_time())
        )
    else:
        commit = dying._queue.commit

        async def commit_and_die(*args: object) -> None:
            nonlocal calls
            calls = 1
            if step == "committed":
                await commit(*args)  # type: ignore[arg-type]
            die_the_second_time()

        monkeypatch.setattr(dying._queue, "commit", commit_and_die)
    with pytest.raises(PowerCut):
        await dying.run()
    for lock in dying._intakes[None].segment._locks:
        os.close(lock)
    dying._intakes[None].segment._locks = []
    record = PageQueue(client, RUN)
    await record.reclaim_dead(await record.now_ms() + 60_000, 30_000)

    await make("next-1").run()

    assert sorted(stored(tmp_path)) == [f"http://a.test/{n}" for n in range(6)]
    assert sorted(await waiting(client, "a.test")) == [b"1 0 h/from-%d" % n for n in range(6)]
    assert await client.command("HGET", keys.page_counters(RUN), "stored") == b"6"
    assert unfinished(RunPaths(tmp_path, RUN).pages) == []


def test_names_of_parsers_are_new_each_time_and_fit_for_files() -> None:
    names = {new_parser_name("a/b c") for _ in range(100)}

    assert len(names) == 100
    assert all(name.startswith("a_b_c-") and "/" not in name for name in names)


async def counters(client: RedisClient) -> dict[str, int]:
    answer: list[bytes] = await client.command("HGETALL", keys.page_counters(RUN))
    counts = zip(answer[::2], map(int, answer[1::2]), strict=True)
    return {name.decode(): count for name, count in counts if name.startswith((b"filtered:", b"links"))}


async def test_links_that_the_rules_refuse_are_counted_by_reason_and_not_admitted(
    client: RedisClient, make: Make
) -> None:
    hrefs = ("/fine?utm_source=x", "/y.zip", "/z.zip", "/x/x/x/x", "http://b.test/", "/private/")
    body = "".join(f"<a href='{href}'>x</a>" for href in hrefs)
    await push(client, a_page("http://a.test/", body))

    await make(CRAWL_SCOPE="host", CRAWL_EXCLUDE="/private/").run()

    assert await waiting(client, "a.test") == [b"1 0 h/fine"]
    assert await waiting(client, "b.test") == []
    assert await counters(client) == {
        "links": 1,
        "filtered:extension": 2,
        "filtered:trap_repeat": 1,
        "filtered:scope": 1,
        "filtered:excluded": 1,
    }


async def test_refusals_are_counted_once_for_each_segment(client: RedisClient, make: Make) -> None:
    pages = [a_page(f"http://a.test/{number}", "<a href='/y.zip'>y</a>") for number in range(4)]
    await push(client, *pages)

    await make(CRAWL_PARSE_BATCH=1, CRAWL_SEGMENT_PAGES=2).run()

    assert await counters(client) == {"links": 0, "filtered:extension": 4}


async def test_an_exclusion_file_is_obeyed_and_reloaded_when_it_changes(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    file = tmp_path / "exclusions.txt"
    file.write_text("b.test\n")
    parser = make(CRAWL_EXCLUDE_FILE=str(file))
    file.write_text("b.test\nc.test\n")
    body = "<a href='http://b.test/'>b</a><a href='http://c.test/'>c</a><a href='http://d.test/'>d</a>"
    await push(client, a_page("http://a.test/", body))

    await parser.run()

    found = [await waiting(client, domain) for domain in ("b.test", "c.test", "d.test")]
    assert found == [[], [], [b"1 0 h/"]]
    assert await counters(client) == {"links": 1, "filtered:excluded": 2}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs the frontier was asked to admit, as often as it was."""
    urls: list[str] = []
    admit = Frontier.admit

    async def note(self: Frontier, candidates: Iterable[Candidate], **options: bool) -> Admitted:
        listed = list(candidates)
        urls.extend(candidate.url for candidate in listed)
        return await admit(self, listed, **options)

    monkeypatch.setattr(Frontier, "admit", note)
    return urls


async def test_a_link_on_every_page_is_admitted_once(
    client: RedisClient, make: Make, asked: list[str]
) -> None:
    body = "<a href='/home'>h</a><a href='http://b.test/'>b</a>"
    await push(client, *(a_page(f"http://a.test/{number}", body, depth=5 - number) for number in range(5)))

    await make(CRAWL_PARSE_BATCH=1).run()

    assert asked == ["http://a.test/home", "http://b.test/"]


async def test_a_link_is_admitted_again_when_the_run_was_emptied(client: RedisClient, make: Make) -> None:
    parser, page = make(), a_page("http://a.test/", "<a href='/home'>h</a>")
    run = await Run.open(client, RUN, partitions=PARTITIONS)
    await push(client, page)
    await parser.run()

    await run.delete()
    await Run.open(client, RUN, partitions=PARTITIONS)
    await push(client, page)
    await parser.run()

    assert await waiting(client, "a.test") == [b"1 0 h/home"]


async def test_a_link_is_admitted_again_when_redis_may_have_forgotten_it(
    client: RedisClient, make: Make, redis_url: str, tmp_path: Path
) -> None:
    parser, page = make(), a_page("http://a.test/", "<a href='/home'>h</a>")
    await push(client, page)
    await parser.run()

    other = await RedisClient.open(url=redis_url, data_dir=tmp_path)
    await other.command("UNLINK", *await other.command("KEYS", "*}:p*:*"))
    await other.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await other.command("RPUSH", keys.pages(RUN), page)
    await other.close()
    await parser.run()

    assert await waiting(client, "a.test") == [b"1 0 h/home"]


async def test_a_link_is_admitted_again_when_it_could_not_be_admitted(
    client: RedisClient, make: Make, asked: list[str]
) -> None:
    parser, page = make(), a_page("http://a.test/", "<a href='/home'>h</a>")
    partition = partition_of("a.test", PARTITIONS)
    await client.command("SET", keys.domains(RUN, partition), "in the way")
    await push(client, page)
    with pytest.raises(ScriptError):
        await parser.run()

    await client.command("UNLINK", keys.domains(RUN, partition))
    await push(client, page)
    await parser.run()

    assert set(asked) == {"http://a.test/home"}
    assert await waiting(client, "a.test") == [b"1 0 h/home"]


async def test_known_links_are_refused_and_counted_like_new_ones(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    file = tmp_path / "exclusions.txt"
    file.write_text("")
    ticks = iter(range(10**9))
    parser = make(
        clock=lambda: float(next(ticks)),
        CRAWL_SCOPE="host",
        DEPTH_LIMIT=2,
        CRAWL_PARSE_BATCH=1,
        CRAWL_EXCLUDE_FILE=str(file),
    )
    body = "<a href='http://a.test/home'>h</a>"
    await push(
        client,
        a_page("http://a.test/", body),
        a_page("http://b.test/", body),
        a_page("http://a.test/deep", body, depth=2),
    )
    await parser.run()

    file.write_text("re:home\n")
    await push(client, a_page("http://a.test/", body))
    await parser.run()

    assert await counters(client) == {
        "links": 1,
        "filtered:scope": 1,
        "filtered:depth": 1,
        "filtered:excluded": 1,
    }


async def test_pages_that_were_cut_are_counted_with_their_segment(
    client: RedisClient, make: Make, tmp_path: Path
) -> None:
    whole, cut = a_page("http://a.test/1", "<p>x"), a_page("http://a.test/2", "<p>" + "x" * 2000)
    await push(client, whole, cut, a_page("http://a.test/3", "<p>x", truncated=True))

    await make(CRAWL_MAX_BODY=1024).run()

    assert [row["truncated"] for row in read_pages(RunPaths(tmp_path, RUN).pages)] == [False, True, True]
    assert await client.command("HGET", keys.page_counters(RUN), "cut") == b"2"


async def test_rows_of_large_pages_do_not_wait_for_the_rest_of_their_batch(
    client: RedisClient, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(client, *(a_page(f"http://a.test/{number}", "x" * 2_000_000) for number in range(12)))
    parser, waiting = make(), []
    write = parser._write
    monkeypatch.setattr(parser, "_write", lambda rows: waiting.append(len(rows)) or write(rows))

    await parser.run()

    assert waiting[:3] == [4, 4, 4]
    assert stored(tmp_path) == [f"http://a.test/{number}" for number in range(12)]
