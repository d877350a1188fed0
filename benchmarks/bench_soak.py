"""Half an hour at full speed in a web with faults: do descriptors, memory and Redis connections stay flat?

A whole crawl (`scrapy run`, two shards) is sampled every few seconds through the figures that its processes
write down. The first third is left out: caches fill. What grows is what a straight line through the rest
rises by, and more than chance would have it.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, read_options, say
from plots import RESULTS
from processes import start_scrapy

from crawlproj.charts import line_chart
from crawlproj.observe.slots import read_processes
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec

SECONDS = 1800
QUICK_SECONDS = 45
PORT = 21_000
#: Flat means a rise below this share of the mean, or below this many standard errors.
MOST_GROWTH = 0.05
ERRORS = 3.0
#: RunCounters by their metric, and what they are drawn in.
FIGURES = {"memory_bytes": "MB", "open_descriptors": "descriptors", "redis_connections": "connections"}

#: Seconds and value, by figure and process.
Courses = defaultdict[str, defaultdict[str, list[tuple[float, float]]]]


def soak(options: Options, seconds: int) -> Courses:
    world = WorldSpec.rough(
        domains=60 if options.quick else 300, pages_per_domain=40 if options.quick else 3000
    )
    courses: Courses = defaultdict(lambda: defaultdict(list))
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        RedisServer(options.redis_server, aof=True) as redis,
        SimwebProcess(world, Path(name)) as simweb,
    ):
        folder = Path(name)
        seeds = folder / "seeds.txt"
        seeds.write_text("".join(f"{url}\n" for url in simweb.seeds()))
        process = _start(folder, seeds, redis, seconds)
        begun_s = time.monotonic()
        try:
            while process.poll() is None and time.monotonic() - begun_s < seconds + 60:
                time.sleep(seconds / 180)
                for host in (folder / "data" / "runs" / "web" / "metrics").glob("*"):
                    _look(host, time.monotonic() - begun_s, courses, live_s=seconds / 36)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(60)
    return courses


def _start(folder: Path, seeds: Path, redis: RedisServer, seconds: int) -> subprocess.Popen[bytes]:
    settings = {
        "CRAWL_DATA": str(folder / "data"),
        "REDIS_URL": redis.url,
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "CRAWL_SCOPE": "everything",
        "DOWNLOAD_DELAY": "0",
        "DOWNLOAD_TIMEOUT": "5",
        "CRAWL_BACKOFF_SECONDS": "1",
        "CRAWL_METRICS_PORT": str(PORT),
        "CRAWL_FIGURES_SECONDS": str(seconds / 360),
    }
    arguments = [str(seeds), "--shards", "2", "--parsers", "1", "--max-seconds", str(seconds), "--run", "web"]
    return start_scrapy(["run", *arguments], settings)


def _look(folder: Path, now_s: float, courses: Courses, *, live_s: float) -> None:
    """Add what processes published to *courses*, unless it is older than *live_s*, ten times the interval."""
    for process in read_processes(folder, live_s):
        gauges = process.snapshot.gauges
        for figure in FIGURES:
            if process.is_live and figure in gauges:
                value = sum(gauges[figure].values()) / (1e6 if figure == "memory_bytes" else 1)
                courses[figure][f"{process.kind} {process.number}"].append((now_s, value))


def growth_of(course: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return mean, rise and scatter of the last two thirds of *course*."""
    rest = course[len(course) // 3 :]
    times, values = zip(*rest, strict=True)
    slope, start = statistics.linear_regression(times, values)
    scatter = statistics.pstdev(value - (start + slope * at_s) for at_s, value in rest)
    return statistics.fmean(values), slope * (times[-1] - times[0]), scatter


def main(options: Options) -> None:
    seconds = QUICK_SECONDS if options.quick else SECONDS
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    courses = soak(options, seconds)
    table = report.table(
        f"{seconds / 60:g} minutes with faults, the last two thirds",
        "figure",
        "process",
        "mean",
        "rise",
        "scatter",
    )
    for figure, unit in FIGURES.items():
        for process, course in sorted(courses[figure].items()):
            if len(course) < 10:
                say(f"   {process} was seen {len(course)} times only")
                continue
            mean, rise, scatter = growth_of(course)
            table.add(figure, process, f"{mean:.1f}", f"{rise:+.1f}", f"{scatter:.1f}")
            # What a line through so many points rises by chance.
            chance = scatter * (12 / len(course)) ** 0.5
            is_flat = rise <= max(MOST_GROWTH * mean, ERRORS * chance)
            report.goals.append(
                Goal(f"{figure} of {process}", "flat", f"{mean:.1f}, {rise:+.1f} {unit}", is_flat)
            )
        if not options.quick:
            title = f"{figure.replace('_', ' ')} over {seconds / 60:g} minutes at full speed, faults on"
            chart = line_chart(title, "seconds", unit, courses[figure])
            (RESULTS / f"soak-{figure.replace('_', '-')}.svg").write_text(chart)
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__ or ""))
