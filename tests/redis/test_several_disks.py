"""A run on the disks of several machines: what commands say about it, and how it is gathered."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.console import load_command, parser_of
from crawlproj.model.records import Page
from crawlproj.model.segment import SegmentRecord
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import read_segments
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.storage import read_items, read_pages

RUN = "web"
Typed = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def disks(client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three machines a, b and c, each with a data directory, of 1, 2 and 3 pages; b has scraped an item."""

    async def is_over() -> bool:
        return True

    run = await Run.open(client, RUN, partitions=4)
    for number, host in enumerate("abc", 1):
        process = ProcessName(f"i{host}", host, 1)
        monkeypatch.setattr(ProcessName, "of_this", classmethod(lambda cls, process=process: process))
        for page in range(number):
            made = Page(f"http://{host}.test/{page}", RUN, f"{host}.test", 0, 200, 0, 1, {}, b"text")
            made.items = ['{"n":1}'] if (host, page) == ("b", 0) else []
            await client.command("RPUSH", keys.pages(RUN), pack(made))
        config = load_config({"CRAWL_DATA": str(tmp_path / host), "PAGE_STORE": "parquet,jsonl"})
        await Parser(run, config, f"p{host}", is_over).run()
    return tmp_path


@pytest.fixture
def typed(redis_url: str, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Runs a command as a person types it: exit code, output, errors."""

    async def run(name: str, *arguments: str) -> tuple[int, str, str]:
        command = load_command(name)
        opts, args = parser_of(command).parse_known_args(arguments)
        data = opts.data if isinstance(opts.data, str) else opts.data[0]
        command.settings = {"REDIS_URL": redis_url, "CRAWL_DATA": data}
        capfd.readouterr()
        code = await command.work(args, opts)  # type: ignore[attr-defined]
        return int(code or 0), *capfd.readouterr()

    return run


def urls(*directories: Path) -> list[str]:
    return sorted(page["url"] for page in read_pages([one / "runs" / RUN for one in directories], ["url"]))


async def test_every_command_says_what_is_on_other_machines(disks: Path, typed: Typed) -> None:
    missing = "2 of 3 segments, 5 of 6 pages, are not here: they were written on hosts b and c."
    for command in ("pages", "report"):
        code, _, err = await typed(command, "--data", str(disks / "a"))
        assert code == 0
        assert missing in err
    assert missing in (disks / "a/runs/web/report.html").read_text()

    several = ("--data", str(disks / "a"), "--data", str(disks / "b"), "--data", str(disks / "c"))
    _, out, err = await typed("pages", "--query", "SELECT count(*) AS n FROM pages", *several)
    assert (out.split()[-1], err) == ("6", "")
    _, out, err = await typed("items", "--count", *several[:4])
    assert out == "1\n"
    assert "1 of 3 segments, 3 of 6 pages, are not here: they were written on host c." in err


async def test_a_segment_on_two_disks_is_read_once(disks: Path) -> None:
    shutil.copytree(disks / "b", disks / "copy")

    assert urls(disks / "b", disks / "copy", disks / "a") == [
        "http://a.test/0",
        "http://b.test/0",
        "http://b.test/1",
    ]


async def test_gathering_continues_and_takes_only_what_was_recorded(
    client: RedisClient, disks: Path, typed: Typed
) -> None:
    a, b, c = (disks / host / "runs" / RUN for host in "abc")
    # A stranger, a damaged file, and half a file of an earlier attempt.
    (b / "pages/pz-000001.parquet").write_bytes(b"of another run")
    [damaged] = (c / "pages").glob("*.parquet")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + b"?")
    [copied] = (b / "pages").glob("pb-*.parquet")
    (a / "gathering/pages").mkdir(parents=True)
    (a / "gathering/pages" / copied.name).write_bytes(copied.read_bytes()[:100])

    code, out, err = await typed("gather", str(disks / "b"), str(disks / "c"), "--data", str(disks / "a"))

    assert code == 1
    assert f"{damaged.name}: its content is not what was recorded" in err
    assert "1 of 3 segments, 3 of 6 pages, are not here: they were written on host c." in out
    assert urls(disks / "a")[:3] == ["http://a.test/0", "http://b.test/0", "http://b.test/1"]
    assert not (a / "pages/pz-000001.parquet").exists()
    assert len(list(read_items(a))) == 1

    damaged.write_bytes(whole)
    code, out, err = await typed("gather", str(disks / "c"), "--data", str(disks / "a"))

    assert (code, err) == (0, "")
    assert len(urls(disks / "a")) == 6
    assert not (a / "gathering").exists()
    code, out, _ = await typed("pages", "--check", "--data", str(disks / "a"))
    assert (code, out.splitlines()[-1]) == (0, "Nothing is missing.")


async def test_another_machine_is_asked_with_rsync(
    client: RedisClient, disks: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell that would go to the other machine stays here; the rest is rsync's."""
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    shell = disks / "shell"
    shell.write_text('#!/bin/sh\n[ "$1" = b ] || { echo "$1 is down" >&2; exit 255; }\nshift; exec "$@"\n')
    shell.chmod(0o755)
    monkeypatch.setenv("RSYNC_RSH", str(shell))

    code, out, err = await typed("gather", "--data", str(disks / "a"))

    assert code == 1
    assert f"cannot copy from c:{disks / 'c'}: c is down" in err
    assert f"missing: 3 pages, written to c:{disks / 'c'}" in out
    assert len(urls(disks / "a")) == 3


async def test_a_check_names_what_is_damaged_missing_and_foreign(
    client: RedisClient, disks: Path, typed: Typed
) -> None:
    pages = disks / "a/runs/web/pages"
    [file] = pages.glob("*.parquet")
    os.truncate(file, 10)
    (pages / "pz-000001.parquet").write_bytes(b"of another run")

    code, out, _ = await typed("pages", "--check", "--data", str(disks / "a"))

    assert code == 1
    assert f"damaged: {file}: 10 bytes, recorded were" in out
    assert f"foreign: {pages / 'pz-000001.parquet'}" in out
    assert "3 of 3 segments, 6 of 6 pages, are not here: they were written on hosts a, b and c." in out


async def test_a_record_of_an_earlier_release_has_pages_and_no_host(client: RedisClient) -> None:
    await client.command("HSET", keys.segments(RUN), "p-000001", "7")

    assert await read_segments(client, RUN) == {"p-000001": SegmentRecord(7)}
