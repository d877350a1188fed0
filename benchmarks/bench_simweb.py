"""What a request costs the simulated web: it must never be the bottleneck of another measurement.

The client is as thin as Python allows and runs in this process; the server's own CPU time is what counts.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.referee import Referee
from crawlproj.simweb.spec import WorldSpec

CONNECTIONS = 32
PAGES = 10_000
#: Pages of 1 to 4 KB, each answered at once.
SPEC = WorldSpec.calm(domains=50, pages_per_domain=200, size_spread=0.0, page_bytes=1200, latency_ms=0)
TARGET_PER_S = 5000


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client(asyncio.Protocol):
    """Asks for one URL after the other on one connection; counts bytes, reads nothing."""

    def __init__(self, requests: list[bytes], done: asyncio.Future[int]) -> None:
        self._requests = iter(requests)
        self._done = done
        self._left = 0
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._ask()

    def _ask(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            self._done.set_result(self._bytes)
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        if not self._left:
            head, _, body = data.partition(b"\r\n\r\n")
            self._left = int(head[head.rindex(b" ") :]) - len(body)
        else:
            self._left -= len(data)
        if not self._left:
            self._ask()


async def load(port: int, urls: list[str], accept: str) -> int:
    loop = asyncio.get_running_loop()
    waiting = []
    for index in range(CONNECTIONS):
        requests = []
        for url in urls[index::CONNECTIONS]:
            parts = urlsplit(url)
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            headers = f"Host: {parts.netloc}\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: {accept}"
            requests.append(f"GET {target} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
        done: asyncio.Future[int] = loop.create_future()
        await loop.create_connection(partial(Client, requests, done), "127.0.0.1", port)
        waiting.append(done)
    async with asyncio.timeout(60):
        return sum(await asyncio.gather(*waiting))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, SimwebProcess(SPEC, Path(directory)) as simweb:
        urls = sorted(Referee(simweb.world, []).expected)[:PAGES]
        runs = [
            ("each page once, plain", urls, "identity"),
            ("each page once, compressed as its domain likes", urls, "gzip, br, zstd"),
            ("the same 1,000 pages again and again", list(islice(cycle(urls[:1000]), PAGES)), "identity"),
        ]
        for name, asked, accept in runs:
            before_s, start_s = cpu_s(simweb.pid), time.perf_counter()
            received = uvloop.run(load(simweb.port, asked, accept))
            wall_s, used_s = time.perf_counter() - start_s, cpu_s(simweb.pid) - before_s
            count = len(asked)
            per_core = count / used_s
            print(
                f"{name}: {count} pages of {received / count:.0f} bytes at {count / wall_s:.0f}/s, "
                f"server CPU {used_s / count * 1e6:.0f} us each = {per_core:.0f}/s of one core"
            )
    print(f"must reach {TARGET_PER_S}/s of one core")


if __name__ == "__main__":
    main()
