"""The jobs API: beside a crawl with many who watch it, and over a million stored pages.

In one run of a crawl, 30 seconds with 200 event streams and 50 status requests a second alternate with 30
seconds without anybody: latency, errors, and what the crawl's processes and Redis cost a page. A page's cost
drifts as the crawl grows, so each time with watchers is compared with the mean of the times before and after.
What the watchers add to a paused crawl is the work done for them; the rest is the processor's, shared by all.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options, say, spread

from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage.row import PageRow
from crawlproj.storage.segments import SegmentWriter

STREAMS = 200
STATUS_PER_S = 50
ROUNDS = 8
ROUND_S = 30.0
STORED = 1_000_000
ASKED = 20
_SEGMENT_PAGES = 10_000
_DOMAINS = 10_000
_WORDS = 30_000
_JOB = "bench"
_STORE = "store"
_PATIENCE_S = 60.0
MOST_P99_MS = 200.0
MOST_SLOWER = 0.05
MOST_SEARCH_S = 1.0
SETTINGS = {"CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8", "DOWNLOAD_DELAY": "0.5", "CRAWL_API_RATE": "0"}


def main() -> None:
    options = read_options(__doc__ or "")
    with RedisServer(options.redis_server, aof=True) as redis, tempfile.TemporaryDirectory() as folder:
        report = Report(redis.info("server")["redis_version"])
        data = Path(folder)
        asyncio.run(make_store(data, redis.url, 20_000 if options.quick else STORED))
        with serving(data, redis.url) as server:
            search(report, server)
            beside_a_crawl(report, options, server, redis, data)
    report.finish(options)


@dataclass(slots=True)
class Server:
    port: int
    pid: int

    def send(self, path: str, body: object = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
        connection.request(
            "POST" if body is not None else "GET",
            path,
            json.dumps(body) if body is not None else None,
            {"Content-Type": "application/json"} if body is not None else {},
        )
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {content[:500]!r}")
        return json.loads(content)


@contextmanager
def serving(data: Path, redis_url: str) -> Iterator[Server]:
    """Serve while the block runs; its jobs are stopped at the end."""
    settings = [f"--set={name}={value}" for name, value in (SETTINGS | {"REDIS_URL": redis_url}).items()]
    words = [sys.executable, "-m", "crawlproj", "serve", "--port", "0", "--data", str(data), *settings]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"serving http://[^:]+:(\d+)/", line)
        if found is None:
            raise RuntimeError(f"the server did not start: {line}{process.stdout.read()}")
        yield Server(int(found[1]), process.pid)
    finally:
        process.kill()
        process.wait()


async def make_store(data: Path, redis_url: str, pages: int) -> None:
    """Write a run with so many pages, by the writer of the parsers."""
    say(f"   writing {pages:,} pages")
    chance = random.Random(1)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 10))) for _ in range(_WORDS)
    ]
    writer = SegmentWriter(data / "runs" / _STORE / "pages", "bench", ["parquet"])

    async def record(name: str, rows: int) -> None:
        """Nobody else writes here."""

    for number in range(pages):
        domain = f"d{number * 7919 % _DOMAINS:05}.example"
        url = f"https://{domain}/{number}.html"
        row = PageRow(
            url=url, final_url=url, domain=domain, depth=number % 7,
            status=404 if number % 50 == 0 else 200,
            fetched_at=datetime.fromtimestamp(1_750_000_000 + number * 0.02, UTC),
            latency_ms=number % 900, content_type="text/html", charset="utf-8", language="en",
            title=" ".join(chance.choices(words, k=6)),
            # Words at their usual frequencies: few are common, most are rare.
            text=" ".join(words[int(_WORDS ** chance.random())] for _ in range(200)),
            body_bytes=20_000, shard=0, attempt=1,
        )  # fmt: skip
        writer.append(row, Page(url, _STORE, domain, 0, 200, 0, 0, {}, b""))
        if writer.rows >= _SEGMENT_PAGES:
            await writer.commit(record)
    await writer.commit(record)
    client = await RedisClient.connect(Config(redis_url=redis_url, data=data))
    await Run.open(client, _STORE, partitions=64)
    await client.close()


def search(report: Report, server: Server) -> None:
    """Ask for pages in the ways of the web page, each several times."""
    first = server.send(f"/api/jobs/{_STORE}/pages?limit=50")
    rare = first["pages"][7]["snippet"].split()[-2]
    questions = {
        "the newest": "?limit=50",
        "a common word": "?limit=50&q=" + first["pages"][0]["snippet"].split()[1],
        "a rare word": "?limit=50&q=" + rare,
        "a missing word": "?limit=50&q=" + quote("no such words at all"),
        "a domain": "?limit=50&domain=d00042.example",
        "a status": "?limit=50&status=404",
        "a minute": "?limit=50&since=2025-06-15T15:06:40Z&until=2025-06-15T15:07:40Z",
        "one page with its text": "/" + first["pages"][0]["id"],
    }
    table = report.table(
        "GET .../pages over all stored pages, over HTTP",
        "asked for",
        "median ms",
        "slowest ms",
        "found",
        "pages searched",
    )
    slowest = 0.0
    for what, asked in questions.items():
        times = []
        for _ in range(ASKED):
            begun_s = time.monotonic()
            answer = server.send(f"/api/jobs/{_STORE}/pages{asked}")
            times.append(time.monotonic() - begun_s)
        slowest = max(slowest, *times)
        table.add(
            what, f"{median(times) * 1000:,.0f}", f"{max(times) * 1000:,.0f}",
            len(answer.get("pages", [0])), f"{answer.get('searched_pages', 1):,}",
        )  # fmt: skip
    table.notes.append("A search answers after 0.7 s at most; `next` continues it.")
    report.goals.append(
        Goal(
            "the slowest answer over all stored pages",
            f"below {MOST_SEARCH_S:g} s",
            f"{slowest:.2f} s",
            slowest < MOST_SEARCH_S,
        )
    )


@dataclass(slots=True)
class Heard:
    """What clients have seen."""

    latencies_s: list[float] = field(default_factory=list)
    #: How late we were ourselves: what a machine that is busy with other things does to everybody.
    late_s: list[float] = field(default_factory=list)
    events: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the processes of the crawl and its Redis took in a while."""

    cpu_ms_per_s: float
    pages_per_s: float

    @property
    def of_a_page_ms(self) -> float:
        return self.cpu_ms_per_s / max(0.01, self.pages_per_s)

    def __str__(self) -> str:
        return f"{self.of_a_page_ms:.2f} ms a page, {self.pages_per_s:.0f} pages/s"


def beside_a_crawl(report: Report, options: Options, server: Server, redis: RedisServer, data: Path) -> None:
    round_s = 5.0 if options.quick else ROUND_S
    rounds = 1 if options.quick else ROUNDS
    heard, served = Heard(), []

    def alone() -> Cost:
        return cost_of(server, redis, lambda: time.sleep(round_s))

    def watched() -> Cost:
        return cost_of(server, redis, lambda: asyncio.run(watch(server.port, round_s, heard)))

    # No domain runs out of pages: the rate stays the same to the end.
    spec = WorldSpec.calm(domains=60, pages_per_domain=10_000)
    with SimwebProcess(spec, data / "simweb") as simweb:
        server.send(
            "/api/jobs",
            {"name": _JOB, "seeds": simweb.seeds(), "scope": "everything", "shards": 2, "parsers": 1},
        )
        while server.send(f"/api/jobs/{_JOB}")["completed"] < 500:
            time.sleep(0.2)
        busy = [(alone(), Cost(0, 0))]
        for number in range(rounds):
            before_s = process_cpu_s(server.pid)
            seen = watched()
            served.append((process_cpu_s(server.pid) - before_s) / round_s)
            busy.append((alone(), seen))
            say(f"   {number + 1}: watched {seen}; alone {busy[-1][0]}; server {served[-1]:.2f} cores")
        server.send(f"/api/jobs/{_JOB}/pause", {})
        wait_until_idle(server)
        idle = [(alone(), watched()) for _ in range(min(rounds, 3))]
        server.send(f"/api/jobs/{_JOB}/stop", {})
        while server.send(f"/api/jobs/{_JOB}")["processes"]:
            time.sleep(0.2)
    tell_latencies(report, heard, served)
    tell_costs(report, [one for one, _ in busy], [one for _, one in busy[1:]], idle)


def wait_until_idle(server: Server) -> None:
    """Wait until a paused crawl has stored what it had fetched."""
    before = -1
    while (now := server.send(f"/api/jobs/{_JOB}")["pages_stored"]) != before:
        before = now
        time.sleep(5)


def cost_of(server: Server, redis: RedisServer, work: Callable[[], object]) -> Cost:
    processes = [line["pid"] for line in server.send(f"/api/jobs/{_JOB}")["processes"]]
    fetched, begun_s = asyncio.run(pages_fetched(redis.url)), time.monotonic()
    before_s, redis_s = sum(map(process_cpu_s, processes)), redis.cpu_s()
    work()
    cpu_s = sum(map(process_cpu_s, processes)) - before_s + redis.cpu_since_s(redis_s)
    took_s = time.monotonic() - begun_s
    pages = asyncio.run(pages_fetched(redis.url)) - fetched
    return Cost(cpu_s * 1000 / took_s, pages / took_s)


async def pages_fetched(redis_url: str) -> int:
    """Ask Redis: the server's answer may be a second old, and is when others have just asked."""
    client = await RedisClient.connect(Config(redis_url=redis_url))
    counters = await (await Run.find(client, _JOB)).read_counters()
    await client.close()
    return counters.fetched


def tell_latencies(report: Report, heard: Heard, served: list[float]) -> None:
    times, late = sorted(heard.latencies_s), sorted(heard.late_s)
    median_ms, p99_ms, most_ms = (
        value * 1000 for value in (median(times), times[int(len(times) * 0.99)], times[-1])
    )
    late_ms = (late[int(len(late) * 0.99)] * 1000, late[-1] * 1000)
    table = report.table("beside a crawl", "", "measured")
    table.add("status requests", f"{len(times):,}")
    table.add("median, p99, slowest", f"{median_ms:.0f} ms, {p99_ms:.0f} ms, {most_ms:.0f} ms")
    table.add("of it, how late the client was: p99, most", f"{late_ms[0]:.0f} ms, {late_ms[1]:.0f} ms")
    table.add("events", f"{heard.events:,}")
    table.add("errors", f"{len(heard.errors)} {heard.errors[:3] or ''}")
    table.add("CPU of the server, of a core", spread(served, ".2f"))
    report.goals += [
        Goal(
            f"errors with {STREAMS} streams and {STATUS_PER_S} requests/s",
            "none",
            str(len(heard.errors)),
            not heard.errors,
        ),
        Goal(
            "p99 of a status request", f"below {MOST_P99_MS:g} ms", f"{p99_ms:.0f} ms", p99_ms < MOST_P99_MS
        ),
    ]


def tell_costs(report: Report, alone: list[Cost], watched: list[Cost], idle: list[tuple[Cost, Cost]]) -> None:
    """Compare each time with watchers with the times before and after it; *idle*: of a paused crawl."""
    slower = [
        seen.of_a_page_ms * 2 / (before.of_a_page_ms + after.of_a_page_ms) - 1
        for (before, after), seen in zip(pairwise(alone), watched, strict=True)
    ]
    # What is done for those who watch, without what they take by keeping the processor's caches busy.
    work = median([seen.cpu_ms_per_s - unseen.cpu_ms_per_s for unseen, seen in idle])
    share = work / median([one.cpu_ms_per_s for one in alone])
    table = report.table("the crawl and its Redis, beside those who watch", "", "alone", "watched")
    rows: list[tuple[str, Callable[[Cost], float], str]] = [
        ("pages/s", lambda one: one.pages_per_s, ".0f"),
        ("CPU ms a page", lambda one: one.of_a_page_ms, ".2f"),
    ]
    for name, part, form in rows:
        table.add(name, *(spread([part(one) for one in times], form) for times in (alone, watched)))
    table.add(
        "paused: CPU ms a second",
        *(spread([pair[side].cpu_ms_per_s for pair in idle], ".1f") for side in (0, 1)),
    )
    table.notes.append(f"CPU a page, each against the mean of before and after: {spread(slower, '+.1%')}.")
    table.notes.append(f"Work done for those who watch: {work:.1f} ms a second, {share:.1%} of the crawl's.")
    report.goals.append(
        Goal(
            "CPU a page of the crawl, watched",
            f"less than {MOST_SLOWER:.0%} more",
            f"{median(slower):+.1%}",
            median(slower) < MOST_SLOWER,
        )
    )


async def watch(port: int, seconds: float, heard: Heard) -> None:
    """Ask for *seconds*, once all streams are open."""
    connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    opened = asyncio.Semaphore(0)
    streams = [asyncio.create_task(listen(port, heard, opened)) for _ in range(STREAMS)]
    for _ in streams:
        await opened.acquire()
    requests = []
    begun_s = time.monotonic()
    for number in range(int(seconds * STATUS_PER_S)):
        due_s = begun_s + number / STATUS_PER_S
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        heard.late_s.append(time.monotonic() - due_s)
        requests.append(asyncio.create_task(ask(port, due_s, connections, heard)))
    await asyncio.gather(*requests)
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    while not connections.empty():
        connections.get_nowait()[1].close()


async def ask(port: int, due_s: float, connections: asyncio.Queue[Any], heard: Heard) -> None:
    """Ask for the status; the time counts from when it was due, so that none of ours is left out."""
    try:
        reader, writer = (
            connections.get_nowait()
            if not connections.empty()
            else await asyncio.open_connection("127.0.0.1", port)
        )
        writer.write(f"GET /api/jobs/{_JOB} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE_S)
        await reader.readexactly(int(re.findall(rb"(?i)content-length: (\d+)", head)[0]))
        if not head.startswith(b"HTTP/1.1 200"):
            heard.errors.append(head[:40].decode())
        heard.latencies_s.append(time.monotonic() - due_s)
        connections.put_nowait((reader, writer))
    except (OSError, EOFError, TimeoutError, IndexError) as exc:
        heard.errors.append(repr(exc))


async def listen(port: int, heard: Heard, opened: asyncio.Semaphore) -> None:
    """Read a stream until cancelled; *opened* is released at its first event, or if there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        try:
            writer.write(f"GET /api/jobs/{_JOB}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await reader.readuntil(b"event: job\n")
            opened.release()
            while part := await reader.read(1 << 16):
                heard.events += part.count(b"event: job\n")
            heard.errors.append("a stream has ended")
        finally:
            writer.close()
    except (OSError, EOFError) as exc:
        opened.release()
        heard.errors.append(repr(exc))


if __name__ == "__main__":
    main()
