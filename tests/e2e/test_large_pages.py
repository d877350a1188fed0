"""Pages of 5 MB, as real sites have them, through a whole crawl: none is cut, and memory stays bounded."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crawlproj.storage.row import COLUMNS
from crawlproj.storage.sink import SINKS
from tests.e2e.conftest import EchoServer, Process

PAGES = 16
PAGE_BYTES = 5_000_000
HOSTS = [f"127.0.0.{number}" for number in range(11, 15)]
MOST_PARSER_BYTES = 300_000_000
MOST_SHARD_BYTES = 300_000_000
LAST = "the last words of a large page"


def a_large_page(number: int) -> bytes:
    """Scripts and styles as far as they go, then an article with links, of exactly `PAGE_BYTES`."""
    chance = random.Random(number)
    head = f"<!doctype html><html><head><title>large {number}</title>"
    sentence = "A sentence of the article that this page is about, and it is long enough to be one. "
    links = "".join(f'<p><a href="mailto:{n}@a.test">{n}</a> {sentence}</p>' for n in range(2000))
    body = f"</head><body><article>{links}<p>{sentence * 3}{LAST}</p></article></body></html>"
    # As hard to compress as minified code is, or harder.
    filler = chance.randbytes(PAGE_BYTES // 2).hex()[: PAGE_BYTES - len(head) - len(body) - 17]
    return f"{head}<script>{filler}</script>{body}".encode()


@pytest.fixture
def large(echo_at: Callable[[str], EchoServer]) -> list[str]:
    """The URLs of large pages on a few sites, every other one compressed, and of one that is too large."""
    servers = [echo_at(host) for host in HOSTS]
    urls = []
    for number in range(PAGES):
        server, path, body = servers[number % len(servers)], f"/{number}", a_large_page(number)
        headers = {"Content-Type": "text/html; charset=utf-8"}
        if number // len(servers) % 2:
            headers["Content-Encoding"], body = "gzip", gzip.compress(body, 1)
        server.answers[path] = [(200, headers, body)]
        urls.append(server.url + path)
    too_large = a_large_page(PAGES) + b"<p>past the limit"
    servers[0].answers["/cut"] = [(200, {"Content-Type": "text/html"}, too_large)]
    return [*urls, servers[0].url + "/cut"]


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process, or a child of it, ever had in RAM."""
    # No such file, or no such line in it: it has ended.
    with suppress(OSError, StopIteration):
        status = Path(f"/proc/{pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return max([int(line.split()[1]) * 1024, *map(peak_bytes, map(int, children))])
    return 0


def test_large_pages_are_stored_whole_in_every_format_within_bounded_memory(
    large: list[str],
    scrapy: Callable[..., Process],
    wait_for: Callable[..., Any],
    json_of: Callable[[str], Any],
    tmp_path: Path,
) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("\n".join(large))
    settings = {"PAGE_STORE": ",".join(SINKS), "DOWNLOAD_DELAY": "0", "CRAWL_FULL_TEXT": "true"}

    shard = scrapy("crawl", "web", "-ashard=0", f"-aseeds={seeds}", **settings)
    parser = scrapy("parser", **settings)
    peaks = {shard: 0, parser: 0}

    def is_over() -> bool:
        for process, peak in peaks.items():
            peaks[process] = max(peak, peak_bytes(process.process.pid))
        return not shard.is_running and not parser.is_running

    wait_for(is_over, "both have ended")
    status = scrapy("status", "--json")
    assert status.wait() == 0

    for sink in SINKS.values():
        files = (tmp_path / "data/runs/web/pages").glob(f"*{sink.suffix}")
        rows = {row["url"]: row for path in files for row in sink.read(path, COLUMNS)}
        assert set(rows) == set(large), shard.log + parser.log
        *whole, cut = (rows[url] for url in large)
        kept = {(row["body_bytes"], row["truncated"], row["error"]) for row in whole}
        assert kept == {(PAGE_BYTES, False, None)}
        assert all(row["text"].endswith(LAST) for row in whole)
        assert (cut["body_bytes"], cut["truncated"]) == (PAGE_BYTES, True)
    assert json_of(status.log)["pages_cut"] == 1
    assert 0 < peaks[parser] <= MOST_PARSER_BYTES
    assert 0 < peaks[shard] <= MOST_SHARD_BYTES


def test_the_end_of_a_run_and_its_report_say_how_many_pages_were_cut(
    large: list[str], scrapy: Callable[..., Process]
) -> None:
    run = scrapy("run", large[-1], large[0], "--shards=1", "--parsers=1", DOWNLOAD_DELAY="0")
    assert run.wait() == 0
    report = scrapy("report")
    assert report.wait() == 0

    assert "Truncated pages: 1; the rest was over CRAWL_MAX_BODY or never sent." in run.log
    assert "2 pages of run web, 1 of them truncated" in report.log
