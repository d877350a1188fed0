"""The whole job (fetch, links, dedup, text, store) on whole pages, all processes counted, beside the peers.

On wild pages (those of ``--pages DIR``, or made ones that resemble them), compressed and over TLS as the web
sends them; or, with ``--corpus docs``, on documentation, plain, where there is little but text.
Crawlers take turns, several rounds. After each crawl the pages that it stored are checked: exactly those of
the corpus, and of each the same words. What starting and ending cost is measured by a crawl of the same hosts
with one small page each, in the same round; it is listed separately and subtracted from 'per page' figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from certificates import Certificates, make_certificates
from contenders import ALL_TEXT, MAIN_TEXT, Crawler, Job, Stored
from corpus import Corpus, load, words, words_of
from corpus_server import CorpusServer
from family import Cost, watch
from measuring import Goal, Options, RedisServer, Report, Table, median, read_options, say, spread
from wild_corpus import PAGES_PER_HOST, load_wild

from crawlproj.charts import bar_chart, stacked_bars

ROUNDS = 3
PATIENCE_S = 1800.0
#: The words of every Nth page are compared.
CHECK_EVERY = 10
RESULTS = Path(__file__).parent / "results"
KINDS = ("fetch", "parse", "supervisor", "redis")
#: The CPU of a page that is wanted, beside each peer, on each web.
WANTED = {
    "wild": {"stock Scrapy": 1 / 8, "by hand": 1.2},
    "docs": {"stock Scrapy": 1 / 15, "scrapy-redis": 1 / 20, "by hand": 1.2},
}


@dataclass(frozen=True, slots=True)
class Web:
    """What is crawled, by whom.

    ``least_words``: the share of a page's words that are in all of its text and in its main text, and the
    share of what is stored that is on its page (precision).
    """

    name: str
    title: str
    corpus: Corpus
    crawlers: tuple[Crawler, ...]
    gzip: bool
    tls: bool
    least_words: dict[str, float]
    file: str


@dataclass(frozen=True, slots=True)
class Crawled:
    pages: int
    #: From the first request for a page to the last, or to the last page that was written.
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


# --- One crawl ------------------------------------------------------------------------------------------


def crawl(crawler: Crawler, web: Web, corpus: Corpus, redis_server: str) -> Crawled:
    with (
        tempfile.TemporaryDirectory(prefix="versus-") as name,
        RedisServer(redis_server, aof=crawler.aof) as server,
    ):
        folder = Path(name)
        trusted: Certificates | None = make_certificates(folder, corpus.addresses) if web.tls else None
        with CorpusServer(corpus, gzip=web.gzip, certificate=trusted and trusted.server) as sites:
            seeds = folder / "seeds.txt"
            seeds.write_text("\n".join(corpus.seeds(sites.scheme, sites.port)))
            job = Job(folder, seeds, server.url, trusted and trusted.authority)
            cpu_before_s, bytes_before = server.cpu_s(), server.used_bytes()
            try:
                cost = watch(crawler.start(job), crawler.kind_of, PATIENCE_S)
            except RuntimeError as error:
                log = (folder / "output.log").read_text()[-3000:]
                raise RuntimeError(f"{crawler.name}: {error} It said:\n{log}") from None
            redis_s = server.cpu_since_s(cpu_before_s)
        stored = dict(_once(crawler, crawler.read(folder)))
        check(crawler, corpus, sites, stored)
        if corpus is web.corpus:
            check_words(crawler, web, stored)
        return _crawled(cost, sites, server, redis_s, bytes_before, crawler.last_write_s(folder))


def _crawled(
    cost: Cost,
    sites: CorpusServer,
    server: RedisServer,
    redis_s: float,
    bytes_before: int,
    last_write_s: float,
) -> Crawled:
    asked_s = [at_s for at_s, url, _ in sites.log if not url.endswith("/robots.txt")]
    stats = server.info("stats")
    return Crawled(
        pages=len(asked_s),
        seconds=max(*asked_s, last_write_s) - min(asked_s),
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


def check(crawler: Crawler, corpus: Corpus, sites: CorpusServer, stored: dict[str, str]) -> None:
    """Raise RuntimeError unless the crawl did the whole job: these pages, and nothing twice."""
    expected = corpus.urls(sites.scheme, sites.port)
    asked = [url for _, url, _ in sites.log if not url.endswith("/robots.txt")]
    for what, urls in (("stored", stored.keys()), ("asked for", set(asked))):
        if urls != expected:
            some = sorted(urls ^ expected)[:5]
            raise RuntimeError(
                f"{crawler.name} {what} {len(urls)} pages, not the {len(expected)} of the corpus: {some}."
            )
    if len(asked) != len(expected):
        raise RuntimeError(f"{crawler.name} asked {len(asked)} times for {len(expected)} pages.")


def check_words(crawler: Crawler, web: Web, stored: dict[str, str]) -> None:
    """Raise RuntimeError unless the words of the pages are stored, and none that are not on them."""
    recalls, precisions = [], []
    for url in sorted(stored)[::CHECK_EVERY]:
        found, visible = words(stored[url]), words_of(web.corpus.body(url))
        recalls.append(len(found & visible) / max(len(visible), 1))
        precisions.append(len(found & visible) / len(found) if found else 1.0)
    recall, precision = sum(recalls) / len(recalls), sum(precisions) / len(precisions)
    least_recall, least_precision = web.least_words[crawler.text], web.least_words["precision"]
    if recall < least_recall or precision < least_precision:
        raise RuntimeError(
            f"{crawler.name} stored {recall:.1%} of the words of its pages (wanted: {least_recall:.0%}), and "
            f"{precision:.1%} of what it stored is on them ({least_precision:.0%})."
        )


# --- The report -----------------------------------------------------------------------------------------


def add_results(report: Report, web: Web, results: dict[str, list[Measured]]) -> None:
    corpus = web.corpus
    table = report.table(
        f"the whole job on {web.title}: {corpus.page_count:,} of {corpus.mean_bytes / 1000:.0f} KB on "
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
        "Pages/s: from the first request to the last page written, "
        f"of Scrapy to the last request. Pages are of {', '.join(corpus.packages)}."
    )
    memory = report.table(
        f"memory and Redis, {web.title}",
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


def judge(report: Report, web: Web, results: dict[str, list[Measured]]) -> None:
    ours = results.get("crawlproj")
    if not ours:
        return
    for peer, most in WANTED[web.name].items():
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
                Goal(
                    f"{what}, {web.name} pages, crawlproj to {peer}",
                    _share(most),
                    _share(ratio),
                    ratio <= most,
                )
            )
    if web.name == "docs":
        rate = max(
            median([m.rate for m in results[name]]) for name in results if name.startswith("crawlproj")
        )
        report.goals.append(
            Goal("pages/s, docs pages, whole job, zero delay", ">= 500", f"{rate:.0f}", rate >= 500)
        )
    for kind in ("fetch", "parse"):
        peak = max(
            m.full.peak_bytes[kind] for name in results if name.startswith("crawlproj") for m in results[name]
        )
        goal = Goal(
            f"memory of a {kind} process, {web.name} pages",
            "<= 300 MB",
            f"{peak / 1e6:.0f} MB",
            peak <= 300e6,
        )
        report.goals.append(goal)


def _share(ratio: float) -> str:
    return f"1/{1 / ratio:.1f}" if ratio < 0.5 else f"{ratio:.2f}x"


def plot(table: Table, web: Web, results: dict[str, list[Measured]]) -> None:
    parts = {
        name: {kind: max(median([m.cpu_ms(kind) for m in measured]), 0.0) for kind in KINDS}
        for name, measured in results.items()
    }
    fast = {name: kinds for name, kinds in parts.items() if not name.startswith(("stock", "scrapy"))}
    rates = {name: median([m.rate for m in measured]) for name, measured in results.items()}
    RESULTS.mkdir(exist_ok=True)
    for file, svg in (
        ("cpu", stacked_bars(f"CPU of the whole job, {web.title}", "ms a page", parts)),
        ("cpu-fast", stacked_bars("CPU of the whole job, without Scrapy's", "ms a page", fast)),
        ("rate", bar_chart(f"The whole job on this machine, {web.title}", "pages/s", rates)),
    ):
        name = f"{web.file}-{file}"
        (RESULTS / f"{name}.svg").write_text(svg)
        table.notes += ["", f"![{name}]({name}.svg)"]


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--corpus", choices=("wild", "docs"), default="wild")
    parser.add_argument("--pages", type=Path)
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    options = read_options(__doc__ or "")
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    web = web_of(given.corpus, given.pages, is_quick=options.quick)
    compare(report, web, options, given.rounds, given.only)
    report.finish(options)


def web_of(which: str, folder: Path | None, *, is_quick: bool) -> Web:
    if which == "wild":
        corpus = load_wild(folder, 5 if is_quick else PAGES_PER_HOST)
        title = f"wild pages ({folder.name if folder else 'made'}, https, gzip)"
        least = {"all": 0.9, "main": 0.1, "precision": 0.9}
        return Web("wild", title, corpus, MAIN_TEXT, True, True, least, "versus-wild")
    whole = load()
    corpus = whole.smaller(10) if is_quick else whole
    least = {"all": 0.97, "main": 0.4, "precision": 0.97}
    return Web("docs", "documentation (http)", corpus, ALL_TEXT, False, False, least, "versus")


def compare(report: Report, web: Web, options: Options, rounds: int, only: str) -> None:
    crawlers = [crawler for crawler in web.crawlers if not only or crawler.name in only.split(";")]
    results: dict[str, list[Measured]] = {crawler.name: [] for crawler in crawlers}
    for turn in range(rounds or (1 if options.quick else ROUNDS)):
        for crawler in crawlers:
            started_s = time.monotonic()
            full, null = (
                crawl(crawler, web, pages, options.redis_server) for pages in (web.corpus, web.corpus.empty())
            )
            measured = Measured(full, null)
            results[crawler.name].append(measured)
            say(
                f"   {turn + 1}: {crawler.name}: {measured.cpu_ms():.2f} ms a page, {measured.rate:.0f} "
                f"pages/s ({time.monotonic() - started_s:.0f} s)"
            )
    add_results(report, web, results)
    judge(report, web, results)
    if not (options.quick or only):
        plot(report.tables[0], web, results)


if __name__ == "__main__":
    main()
