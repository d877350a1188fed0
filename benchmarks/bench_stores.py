"""What an object store adds to storing a page: CPU time of a parser that commits to a disk, and to S3.

With BENCH_STORE=s3://BUCKET/PREFIX (and AWS_* as for a crawl) that store is measured; without, an S3 server
of the tests on loopback. The server's own CPU time does not count.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from time import process_time, time_ns

from bench_storage import documents, made_of
from measuring import Goal, Options, Report, median, read_options, spread

from crawlproj.model.records import Page
from crawlproj.storage.row import PageRow
from crawlproj.storage.segments import SegmentWriter
from crawlproj.storage.uploads import Uploads

#: What the issue allows.
MOST_TIMES = 1.1
PAGES = 20_000
#: Pages of a segment: as many as close one by default, and as a small crawl has.
SEGMENTS = (10_000, 100)


def main() -> None:
    options = read_options(__doc__ or "")
    if address := os.environ.get("BENCH_STORE"):
        measure_all(options, address)
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.stores import BUCKET, S3Server, environment

    with tempfile.TemporaryDirectory() as folder:
        server = S3Server(Path(folder) / "log")
        os.environ |= environment(server.port)
        try:
            measure_all(options, f"s3://{BUCKET}/bench")
        finally:
            server.stop()


def measure_all(options: Options, address: str) -> None:
    report = Report(redis_version="")
    count = 1000 if options.quick else PAGES
    pages = list(islice(cycle(list(islice(made_of(documents()), 500))), count))
    table = report.table(
        f"storing {count:,} pages as Parquet, CPU ms a page",
        "pages a segment",
        "disk",
        "S3",
        "times",
        "all runs",
    )
    # What is imported and connected once is not measured.
    for place in (None, address):
        measure(pages[:100], 50, place)
    ratios = []
    for size in SEGMENTS:
        pairs = [
            (measure(pages, size, None), measure(pages, size, address))
            for _ in range(1 if options.quick else 5)
        ]
        disk, store = (median([pair[kind] for pair in pairs]) for kind in (0, 1))
        times = [store / disk for disk, store in pairs]
        ratios.append(median(times))
        table.add(f"{size:,}", f"{disk:.3f}", f"{store:.3f}", f"{median(times):.2f}", spread(times, ".2f"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    table.notes.append(f"Most memory of the process: {memory:,.0f} MB, the pages among it.")
    report.goals.append(
        Goal(
            f"S3 against a disk, {SEGMENTS[0]:,} pages a segment",
            f"at most {MOST_TIMES} times the CPU",
            f"{ratios[0]:.2f} times",
            ratios[0] <= MOST_TIMES,
        )
    )
    report.finish(options)


def measure(pages: Sequence[tuple[PageRow, Page]], size: int, address: str | None) -> float:
    """Return the CPU time in ms that a page takes, with its commit."""

    async def record(segment: str, rows: int) -> None:
        pass

    async def store(folder: Path) -> None:
        run = f"bench-{time_ns()}"
        writer = SegmentWriter(
            folder / "pages", "p", ["parquet"], run_id=1, destination=Uploads.to(address, run)
        )
        for row, page in pages:
            writer.append(row, page)
            if writer.rows == size:
                await writer.commit(record)
        await writer.commit(record)

    with tempfile.TemporaryDirectory() as folder:
        begun_s = process_time()
        asyncio.run(store(Path(folder)))
        return (process_time() - begun_s) / len(pages) * 1000


if __name__ == "__main__":
    main()
