"""The whole job (fetch, links, dedup, text, store) on real pages, all processes counted, beside the peers.

Crawlers take turns, several rounds. After each crawl the pages that it stored are checked: exactly those of
the corpus, and of each the same words. What starting and ending cost is measured by a crawl of the same hosts
with one small page each, in the same round; it is told apart, and taken off where 'per page' is said.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import redis
from corpus import Corpus, load, words, words_of
from corpus_server import CorpusServer
from family import Cost, watch
from measuring import Goal, Options, RedisServer, Report, median, read_options, say, spread

from crawlproj.charts import bar_chart, stacked_bars
from crawlproj.storage.reader import read_pages

ROUNDS = 3
PATIENCE_S = 1800.0
#: Of every so many pages the words are compared.
CHECK_EVERY = 10
HERE = Path(__file__).parent
PROJECT = HERE.parent
RESULTS = HERE / "results"
KINDS = ("fetch", "parse", "supervisor", "redis")

Stored = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Job:
    """One crawl to do: where its seeds, its Redis and a place for its files are."""

    folder: Path
    seeds: Path
    redis_url: str

    def start(self, words: list[str], *, cwd: Path, imports: list[Path]) -> subprocess.Popen[bytes]:
        with (self.folder / "output.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=cwd,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, imports))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start_peer(self, words: list[str]) -> subprocess.Popen[bytes]:
        # Outside the project: none of our settings may reach it.
        return self.start(words, cwd=self.folder, imports=[HERE / "peers"])


@dataclass(frozen=True, slots=True)
class Crawler:
    name: str
    start: Callable[[Job], list[subprocess.Popen[bytes]]]
    read: Callable[[Path], Stored]
    kind_of: Callable[[str], str] = lambda command: "fetch"
    #: Whether all visible words are stored, or only those that the page is about.
    text: Literal["all", "main"] = "all"
    aof: bool = False


@dataclass(frozen=True, slots=True)
class Crawled:
    pages: int
    #: From the first to the last request for a page, by the server's log.
    seconds: float
    cpu_s: dict[str, float]
    all_cpu_s: float
    peak_bytes: dict[str, int]
    redis_peak_bytes: int
    redis_moved_bytes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A crawl, and one of nothing right after it."""

    full: Crawled
    null: Crawled

    def cpu_ms(self, kind: str | None = None) -> float:
        """CPU per page, of processes of *kind* or of all, without starting and ending."""
        pages = self.full.pages - self.null.pages
        return 1000 * (_cpu_s(self.full, kind) - _cpu_s(self.null, kind)) / pages

    @property
    def whole_ms(self) -> float:
        """CPU per page, starting and ending included."""
        return 1000 * self.full.all_cpu_s / self.full.pages

    @property
    def rate(self) -> float:
        return self.full.pages / self.full.seconds


def _cpu_s(crawled: Crawled, kind: str | None) -> float:
    return crawled.all_cpu_s if kind is None else crawled.cpu_s.get(kind, 0.0)


# --- The crawlers ---------------------------------------------------------------------------------------


def start_stock(job: Job) -> list[subprocess.Popen[bytes]]:
    spider = [str(HERE / "peers" / "stock.py"), "-a", f"seeds={job.seeds}"]
    return [job.start_peer(["-m", "scrapy", "runspider", *spider, "-O", str(job.folder / "pages.jsonl")])]


def start_scrapy_redis(job: Job, processes: int) -> list[subprocess.Popen[bytes]]:
    with redis.Redis.from_url(job.redis_url) as client:
        client.rpush("pages:start_urls", *job.seeds.read_text().split())
    spider = [str(HERE / "peers" / "with_scrapy_redis.py"), "-s", f"REDIS_URL={job.redis_url}"]
    return [
        job.start_peer(
            ["-m", "scrapy", "runspider", *spider, "-O", str(job.folder / f"pages-{number}.jsonl")]
        )
        for number in range(processes)
    ]


def start_by_hand(job: Job) -> list[subprocess.Popen[bytes]]:
    program = str(HERE / "peers" / "by_hand.py")
    return [
        job.start_peer([program, "fetch", job.redis_url]),
        job.start_peer([program, "parse", job.redis_url, str(job.seeds), str(job.folder / "pages.jsonl")]),
    ]


def kind_by_hand(command: str) -> str:
    return "fetch" if "by_hand.py fetch" in command else "parse"


def start_ours(job: Job, shards: int, text: str | None) -> list[subprocess.Popen[bytes]]:
    settings = {
        "REDIS_URL": job.redis_url,
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "DOWNLOAD_DELAY": "0",
        # Otherwise a domain rests as long as its last answer took.
        "CRAWL_DELAY_FACTOR": "0",
        # Peers read pages to their end; the largest has 400 KB.
        "CRAWL_MAX_BODY": "1000000",
    } | ({"CRAWL_TEXT": text} if text else {})
    run = [str(job.seeds), "--data", str(job.folder / "data"), "--shards", str(shards)]
    # As many parsers: with one alone, two shards would wait for it.
    run += ["--parsers", str(shards)]
    words = [word for pair in settings.items() for word in ("-s", "=".join(pair))]
    return [job.start(["-m", "scrapy", "run", *run, *words], cwd=PROJECT, imports=[PROJECT])]


def kind_ours(command: str) -> str:
    if " crawl web" in command or command.startswith("shard"):
        return "fetch"
    return "parse" if " parser " in command or command.startswith("parser") else "supervisor"


def read_lines(folder: Path) -> Stored:
    for path in folder.glob("pages*.jsonl"):
        with path.open() as lines:
            for line in lines:
                page = json.loads(line)
                yield page["url"], page["text"]


def read_ours(folder: Path) -> Stored:
    for page in read_pages(folder / "data" / "runs" / "web" / "pages", ["url", "text"]):
        yield page["url"], page["text"] or ""


CRAWLERS = (
    Crawler("stock Scrapy", start_stock, read_lines),
    Crawler("scrapy-redis", lambda job: start_scrapy_redis(job, 1), read_lines),
    Crawler("scrapy-redis, 2 processes", lambda job: start_scrapy_redis(job, 2), read_lines),
    Crawler("by hand", start_by_hand, read_lines, kind_by_hand),
    Crawler("crawlproj", lambda job: start_ours(job, 1, "all"), read_ours, kind_ours, aof=True),
    Crawler("crawlproj, 2 shards", lambda job: start_ours(job, 2, "all"), read_ours, kind_ours, aof=True),
    Crawler("crawlproj, main text", lambda job: start_ours(job, 1, None), read_ours, kind_ours, "main", True),
    Crawler(
        "crawlproj, main text, 2 shards",
        lambda job: start_ours(job, 2, None),
        read_ours,
        kind_ours,
        "main",
        True,
    ),
)


# --- One crawl ------------------------------------------------------------------------------------------


def crawl(crawler: Crawler, corpus: Corpus, *, redis_server: str, gzip: bool) -> Crawled:
    with (
        tempfile.TemporaryDirectory(prefix="versus-") as name,
        RedisServer(redis_server, aof=crawler.aof) as server,
    ):
        folder = Path(name)
        with CorpusServer(corpus, gzip=gzip) as web:
            seeds = folder / "seeds.txt"
            seeds.write_text("\n".join(corpus.seeds(web.port)))
            cpu_before_s, bytes_before = server.cpu_s(), server.used_bytes()
            try:
                cost = watch(crawler.start(Job(folder, seeds, server.url)), crawler.kind_of, PATIENCE_S)
            except RuntimeError as error:
                log = (folder / "output.log").read_text()[-3000:]
                raise RuntimeError(f"{crawler.name}: {error} It said:\n{log}") from None
            redis_s = server.cpu_since_s(cpu_before_s)
        check(crawler, corpus, web, dict(_once(crawler, crawler.read(folder))))
        return _crawled(cost, web, server, redis_s, bytes_before)


def _crawled(
    cost: Cost, web: CorpusServer, server: RedisServer, redis_s: float, bytes_before: int
) -> Crawled:
    asked_s = [at_s for at_s, url, _ in web.log if not url.endswith("/robots.txt")]
    stats = server.info("stats")
    return Crawled(
        pages=len(asked_s),
        seconds=max(asked_s) - min(asked_s),
        cpu_s=dict(cost.cpu_s) | {"redis": redis_s},
        all_cpu_s=cost.all_cpu_s + redis_s,
        peak_bytes=dict(cost.peak_bytes),
        redis_peak_bytes=int(server.info("memory")["used_memory_peak"]) - bytes_before,
        redis_moved_bytes=int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"]),
    )


def _once(crawler: Crawler, stored: Stored) -> Stored:
    seen = set()
    for url, text in stored:
        if url in seen:
            raise RuntimeError(f"{crawler.name} stored {url} twice.")
        seen.add(url)
        yield url, text


def check(crawler: Crawler, corpus: Corpus, web: CorpusServer, stored: dict[str, str]) -> None:
    """Raise RuntimeError unless the crawl did the whole job: these pages, their words, nothing twice."""
    expected = corpus.urls(web.port)
    asked = [url for _, url, _ in web.log if not url.endswith("/robots.txt")]
    for what, urls in (("stored", stored.keys()), ("asked for", set(asked))):
        if urls != expected:
            some = sorted(urls ^ expected)[:5]
            raise RuntimeError(
                f"{crawler.name} {what} {len(urls)} pages, not the {len(expected)} of the corpus: {some}."
            )
    if len(asked) != len(expected):
        raise RuntimeError(f"{crawler.name} asked {len(asked)} times for {len(expected)} pages.")
    check_words(crawler, {url: (stored[url], corpus.body(url)) for url in sorted(expected)[::CHECK_EVERY]})


def check_words(crawler: Crawler, pages: dict[str, tuple[str, bytes]]) -> None:
    recalls, precisions = [], []
    for text, body in pages.values():
        found, visible = words(text), words_of(body)
        recalls.append(len(found & visible) / len(visible))
        precisions.append(len(found & visible) / max(len(found), 1))
    recall, precision = sum(recalls) / len(recalls), sum(precisions) / len(precisions)
    least_recall = 0.97 if crawler.text == "all" else 0.4
    if recall < least_recall or precision < 0.97:
        raise RuntimeError(
            f"{crawler.name} stored {recall:.1%} of the words of its pages (wanted: {least_recall:.0%}), and "
            f"{precision:.1%} of what it stored is on them (97 %)."
        )


# --- The report -----------------------------------------------------------------------------------------


def tell(report: Report, corpus: Corpus, results: dict[str, list[Measured]]) -> None:
    table = report.table(
        f"the whole job, {corpus.page_count:,} pages of {corpus.mean_bytes / 1000:.0f} KB on "
        f"{len(corpus.sites)} hosts, no delay: CPU ms per page, start and end taken off",
        *("crawler", "pages/s", *KINDS, "all", "all, repetitions", "start and end, s", "all with them"),
    )
    for name, measured in results.items():
        table.add(
            name,
            f"{median([m.rate for m in measured]):.0f}",
            *(f"{median([m.cpu_ms(kind) for m in measured]):.3f}" for kind in KINDS),
            f"{all_ms(measured):.2f}",
            spread([m.cpu_ms() for m in measured], ".2f"),
            f"{median([m.null.all_cpu_s for m in measured]):.2f}",
            f"{median([m.whole_ms for m in measured]):.2f}",
        )
    table.notes.append(
        "Scrapy and scrapy-redis fetch and parse in one process, shown under fetch. Only crawlproj's Redis "
        "writes an append-only file. Start and end: CPU of a crawl of as many hosts with a small page each. "
        f"Pages/s: from the first to the last request. Pages are of {', '.join(corpus.packages)}."
    )
    memory = report.table(
        "memory and Redis",
        "crawler",
        "fetch MB",
        "parse MB",
        "supervisor MB",
        "Redis bytes a page",
        "moved, KB a page",
    )
    for name, measured in results.items():
        last = measured[-1].full
        memory.add(
            name,
            *(f"{last.peak_bytes.get(kind, 0) / 1e6:.0f}" for kind in KINDS[:3]),
            f"{median([m.full.redis_peak_bytes / m.full.pages for m in measured]):.0f}",
            f"{median([m.full.redis_moved_bytes / m.full.pages for m in measured]) / 1000:.1f}",
        )
    memory.notes.append(
        "Peak resident memory of the largest process; Redis: the most it used, and what went in and out."
    )


def all_ms(measured: list[Measured]) -> float:
    return median([m.cpu_ms() for m in measured])


def judge(report: Report, results: dict[str, list[Measured]]) -> None:
    ours = results.get("crawlproj")
    if not ours:
        return
    for peer, most in (("stock Scrapy", 1 / 15), ("scrapy-redis", 1 / 20), ("by hand", 1.2)):
        if peer not in results:
            continue
        for what, ratio in (
            ("CPU per page", all_ms(ours) / all_ms(results[peer])),
            (
                "CPU per page with start and end",
                median([m.whole_ms for m in ours]) / median([m.whole_ms for m in results[peer]]),
            ),
        ):
            report.goals.append(
                Goal(f"{what}, crawlproj to {peer}", _share(most), _share(ratio), ratio <= most)
            )
    rate = max(median([m.rate for m in results[name]]) for name in results if name.startswith("crawlproj"))
    report.goals.append(Goal("pages/s, whole job, zero delay", ">= 500", f"{rate:.0f}", rate >= 500))
    for kind in ("fetch", "parse"):
        peak = max(
            m.full.peak_bytes[kind] for name in results if name.startswith("crawlproj") for m in results[name]
        )
        goal = Goal(f"memory of a {kind} process", "<= 250 MB", f"{peak / 1e6:.0f} MB", peak <= 250e6)
        report.goals.append(goal)


def _share(ratio: float) -> str:
    return f"1/{1 / ratio:.1f}" if ratio < 0.5 else f"{ratio:.2f}x"


def plot(report: Report, results: dict[str, list[Measured]]) -> None:
    parts = {
        name: {kind: max(median([m.cpu_ms(kind) for m in measured]), 0.0) for kind in KINDS}
        for name, measured in results.items()
    }
    fast = {name: kinds for name, kinds in parts.items() if not name.startswith(("stock", "scrapy"))}
    rates = {name: median([m.rate for m in measured]) for name, measured in results.items()}
    RESULTS.mkdir(exist_ok=True)
    for file, svg in (
        ("versus-cpu", stacked_bars("CPU of the whole job", "ms a page", parts)),
        ("versus-cpu-fast", stacked_bars("CPU of the whole job, without Scrapy's", "ms a page", fast)),
        ("versus-rate", bar_chart("The whole job on this machine", "pages/s", rates)),
    ):
        (RESULTS / f"{file}.svg").write_text(svg)
        report.tables[0].notes += ["", f"![{file}]({file}.svg)"]


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--gzip", action="store_true")
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    compare(read_options(__doc__ or ""), given.rounds, given.only, gzip=given.gzip)


def compare(options: Options, rounds: int, only: str, *, gzip: bool) -> None:
    whole = load()
    corpus = whole.smaller(10) if options.quick else whole
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    crawlers = [crawler for crawler in CRAWLERS if not only or crawler.name in only.split(";")]
    results: dict[str, list[Measured]] = {crawler.name: [] for crawler in crawlers}
    for turn in range(rounds or (1 if options.quick else ROUNDS)):
        for crawler in crawlers:
            started_s = time.monotonic()
            full, null = (
                crawl(crawler, pages, redis_server=options.redis_server, gzip=gzip)
                for pages in (corpus, corpus.empty())
            )
            measured = Measured(full, null)
            results[crawler.name].append(measured)
            say(
                f"   {turn + 1}: {crawler.name}: {measured.cpu_ms():.2f} ms a page, {measured.rate:.0f} "
                f"pages/s ({time.monotonic() - started_s:.0f} s)"
            )
    tell(report, corpus, results)
    judge(report, results)
    if not (options.quick or only or gzip):
        plot(report, results)
    report.finish(options)


if __name__ == "__main__":
    main()
