"""Servers that are broken in ways browsers and mostly curl forgive, one host each.

Each serves one small page at / that says which quirk it is, and 404 for everything else, so that robots.txt
is no hurdle. ``python -m crawlproj.simweb.quirks`` prints their URLs as one JSON line; SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

_OK = b"HTTP/1.1 200 OK\r\n"
_HTML = b"Content-Type: text/html\r\n"
_LONG_LINE_BYTES = 16 * 1024
_MAX_REQUEST_BYTES = 65_536
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
#: Quirk n listens on this address plus n. No simulated domain has an address in 127.0.0.0/24.
_FIRST_ADDRESS = 100
_PATIENCE_S = 30.0
#: A server without a quirk, to compare with.
PLAIN = "plain"


def page(name: str) -> bytes:
    """The page of a quirk, as a client should get it."""
    return (
        f"<html><title>{name}</title><body>The page of the quirk {name} has arrived.</body></html>\n".encode()
    )


def _answers(name: str) -> dict[str, bytes]:
    """The whole answer of each quirk, byte for byte, around the page of *name*."""
    body = page(name)
    length = b"Content-Length: %d\r\n" % len(body)
    chunked = b"Transfer-Encoding: chunked\r\n"
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    usual = _OK + _HTML + length
    end = b"Connection: close\r\n\r\n"
    return {
        PLAIN: usual + end + body,
        "colonless-header": usual + b"X-Powered-By nothing\r\n" + end + body,
        "duplicate-length": usual + length + end + body,
        "length-and-chunked": usual + chunked + end + chunks,
        "long-header-line": usual + b"X-Long: %b\r\n" % (b"x" * _LONG_LINE_BYTES) + end + body,
        "non-utf8-header": usual + b"X-Name: caf\xe9 \xff\r\n" + end + body,
        "space-before-colon": usual + b"X-Name : value\r\n" + end + body,
        "no-reason-phrase": b"HTTP/1.1 200\r\n" + _HTML + length + end + body,
        # Nothing says that the close is the end: neither a length, nor chunks, nor Connection: close.
        "close-without-length": _OK + _HTML + b"\r\n" + body,
        "lf-only": (usual + end).replace(b"\r\n", b"\n") + body,
    }


ANSWERS = {name: _answers(name)[name] for name in _answers("")}
QUIRKS = tuple(name for name in ANSWERS if name != PLAIN)


@asynccontextmanager
async def serve(names: Iterable[str] = tuple(ANSWERS)) -> AsyncIterator[dict[str, str]]:
    """Serve these quirks while the block runs; gives the URL of each page, by name."""
    async with AsyncExitStack() as stack:
        urls = {}
        for name in names:
            host = f"127.0.0.{_FIRST_ADDRESS + list(ANSWERS).index(name)}"
            server = await asyncio.start_server(
                partial(_talk, ANSWERS[name]), host, 0, limit=_MAX_REQUEST_BYTES
            )
            await stack.enter_async_context(server)
            urls[name] = f"http://{host}:{server.sockets[0].getsockname()[1]}/"
        yield urls


async def _talk(answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            request = await reader.readuntil(b"\r\n\r\n")
            writer.write(answer if request.split(b" ", 2)[1] == b"/" else _NOT_FOUND)
            await writer.drain()
    except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError, IndexError):
        pass  # a client that goes away, or talks nonsense, is no concern of ours
    finally:
        writer.close()


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve() as urls:
        sys.stdout.write(json.dumps(urls) + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
