"""What a download handler costs: CPU of one page of 20 KB, ours beside those of Scrapy.

All in one process, in turn, on kept connections to a server in another process. The requests are made
beforehand; what is measured is `download_request` alone, with the loop it runs on.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from clients import AIOHTTP, AT_ONCE, OURS, STOCK, make_handlers, run_in_reactor
from measuring import Goal, Options, Report, median, read_options, spread
from raw_server import PAGE, PLAIN, RawServer
from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler

PAGES = 2000
ROUNDS = 9
#: The goal for a handler.
TARGET_MS = 0.1
#: The precision of a measurement on a shared machine.
NOISE = 1.15
BARE = "(a bare asyncio protocol that reads nothing)"
CUT = f"{OURS}, as the web spider asks"
HEADERS = {"User-Agent": "bench/1.0 (+http://127.0.0.1/)", "Accept": "text/html", "Accept-Language": "en"}


class _Bare(asyncio.Protocol):
    """Sends and counts bytes: what the loop and the system alone cost."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if not self._left:
            self._done.set_result(None)

    async def ask(self, request: bytes) -> None:
        self._left = len(PLAIN)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._done


async def bare_visitor(port: int, pages: int) -> None:
    _, client = await asyncio.get_running_loop().create_connection(_Bare, "127.0.0.1", port)
    for number in range(pages):
        await client.ask(b"GET /page%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % number)
    client._transport.close()


async def visitor(handler: BaseDownloadHandler, waiting: list[Request]) -> None:
    while waiting:
        response = await handler.download_request(waiting.pop())
        assert response.body == PAGE


async def cpu_ms(handler: BaseDownloadHandler | None, url: str, pages: int, meta: dict[str, object]) -> float:
    """Return the CPU time of a page, with no *handler* that of the bare protocol."""
    waiting = [
        Request(f"{url}page{number}", headers=HEADERS, meta={"download_timeout": 30.0, **meta})
        for number in range(pages)
    ]
    port = int(url.rstrip("/").rpartition(":")[2])
    visits = [
        bare_visitor(port, pages // AT_ONCE) if handler is None else visitor(handler, waiting)
        for _ in range(AT_ONCE)
    ]
    begun_s = time.process_time()
    await asyncio.gather(*visits)
    return (time.process_time() - begun_s) / pages * 1000


async def measure(options: Options, report: Report, url: str) -> None:
    handlers = make_handlers()
    rows: dict[str, tuple[BaseDownloadHandler | None, dict[str, object]]] = {
        BARE: (None, {}),
        CUT: (handlers[OURS], {"download_cut": 100_000}),
    }
    rows |= {name: (handler, {}) for name, handler in handlers.items()}
    pages, rounds = (200, 3) if options.quick else (PAGES, ROUNDS)
    taken: dict[str, list[float]] = {name: [] for name in rows}
    for handler, meta in rows.values():
        await cpu_ms(handler, url, 200, meta)
    for _ in range(rounds):
        for name, (handler, meta) in rows.items():
            taken[name].append(await cpu_ms(handler, url, pages, meta))
    for opened in handlers.values():
        await opened.close()

    table = report.table("CPU of a download of 20 KB, ms a page", "handler", "median", "all rounds")
    for name, values in taken.items():
        table.add(name, f"{median(values):.3f}", spread(values, ".3f"))
    ours_ms, theirs_ms = median(taken[CUT]), min(median(taken[STOCK]), median(taken[AIOHTTP]))
    report.goals += [
        Goal(
            "CPU of a download handler",
            f"about {TARGET_MS} ms a page of 20 KB",
            f"{ours_ms:.3f} ms",
            ours_ms <= TARGET_MS * NOISE,
        ),
        Goal(
            "CPU beside the faster of Scrapy's handlers",
            "less",
            f"{ours_ms:.3f} ms, {theirs_ms:.3f} ms",
            ours_ms < theirs_ms,
        ),
    ]


def main() -> None:
    options = read_options(__doc__)
    report = Report("")
    with RawServer() as server:
        run_in_reactor(lambda: measure(options, report, server.url))
    report.finish(options)


if __name__ == "__main__":
    main()
