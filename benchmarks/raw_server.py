"""A web server for measuring clients: a page of 20 KB, and pages of servers that get HTTP wrong.

Runs as a process of its own, on a free port of 127.0.0.1, until its input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import TracebackType
from typing import Self, cast

PAGE = b"<!doctype html><title>page</title>" + b"<p>words and more words</p>\n" * 730
_OK = b"HTTP/1.1 200 OK\r\n"
_LENGTH = b"Content-Length: %d\r\n" % len(PAGE)
_CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE)
_USUAL = (
    b"Server: nginx/1.24.0\r\nDate: Mon, 16 Nov 2026 08:00:00 GMT\r\n"
    b"Content-Type: text/html; charset=utf-8\r\n"
    b'Vary: Accept-Encoding\r\nCache-Control: max-age=600\r\nETag: "5f3c-62a1"\r\n'
)

PLAIN = _OK + _USUAL + _LENGTH + b"\r\n" + PAGE
#: What browsers and curl tolerate; the last byte of each is the last that the server sends.
QUIRKS = {
    "header line without a colon": _OK + b"this is no header\r\n" + _LENGTH + b"\r\n" + PAGE,
    "Content-Length twice": _OK + _LENGTH + _LENGTH + b"\r\n" + PAGE,
    "Content-Length and chunked": _OK + _LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + _CHUNKED,
    "header line of 16 KB": _OK + b"X-Long: " + b"a" * 16384 + b"\r\n" + _LENGTH + b"\r\n" + PAGE,
    "header bytes that are no UTF-8": _OK + b"X-Name: \xff\xfe\xe4\r\n" + _LENGTH + b"\r\n" + PAGE,
    "space before the colon": _OK + b"Content-Length : %d\r\n\r\n" % len(PAGE) + PAGE,
    "no reason phrase": b"HTTP/1.1 200\r\n" + _LENGTH + b"\r\n" + PAGE,
    "close without a length": _OK + b"\r\n" + PAGE,
    "lines end with LF": (b"HTTP/1.1 200 OK\r\n" + _LENGTH + b"\r\n").replace(b"\r", b"") + PAGE,
}
_PATHS = {b"/quirk%d" % number: (name, data) for number, (name, data) in enumerate(QUIRKS.items())}


def quirk_path(name: str) -> str:
    return f"quirk{list(QUIRKS).index(name)}"


class _Visit(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._request = b""

    def data_received(self, data: bytes) -> None:
        self._request += data
        if not self._request.endswith(b"\r\n\r\n"):
            return
        path = self._request.split(b" ", 2)[1]
        self._request = b""
        name, answer = _PATHS.get(path, ("", PLAIN))
        self._transport.write(answer)
        if name == "close without a length":
            self._transport.close()


class RawServer:
    """The server as a child process while the ``with`` block runs; ``url`` ends with a slash."""

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._child.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._child.stdout.readline())}/"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.communicate()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Visit, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
