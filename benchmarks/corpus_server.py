"""The corpus on the web: every site on an address of its own, all on one port, answered from memory.

A process of its own, so that no crawler is charged for its CPU. It records every request and its time.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import msgspec
import uvloop
from corpus import Corpus, address

_ROBOTS = b"User-agent: *\nDisallow: /private/\n"
_STOP_WITHIN_S = 10.0

#: What was asked for: seconds of the monotonic clock, URL, status.
Log = list[tuple[float, str, int]]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    plain: bytes
    gzipped: bytes


def _answer(status: str, content_type: str, body: bytes, *, gzip: bool) -> _Answer:
    def head(length: int, encoding: str) -> bytes:
        return (
            f"HTTP/1.1 {status}\r\nServer: corpus\r\nDate: Mon, 16 Nov 2026 08:00:00 GMT\r\n"
            f"Content-Type: {content_type}\r\n{encoding}Content-Length: {length}\r\n"
            "Last-Modified: Sat, 07 Nov 2026 08:00:00 GMT\r\nVary: Accept-Encoding\r\n\r\n"
        ).encode()

    plain = head(len(body), "") + body
    if not gzip:
        return _Answer(int(status[:3]), plain, plain)
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    packed = packer.compress(body) + packer.flush()
    return _Answer(int(status[:3]), plain, head(len(packed), "Content-Encoding: gzip\r\n") + packed)


class _Visit(asyncio.Protocol):
    """One connection; requests have no body, and come one after the other or piped."""

    def __init__(self, host: str, answers: dict[bytes, _Answer], missing: _Answer, log: Log) -> None:
        self._host = host
        self._answers = answers
        self._missing = missing
        self._log = log
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        for request in requests:
            path = request.split(b" ", 2)[1]
            answer = self._answers.get(path, self._missing)
            self._log.append((time.monotonic(), f"{self._host}{path.decode('latin-1')}", answer.status))
            self._transport.write(answer.gzipped if b"gzip" in request else answer.plain)


class CorpusServer:
    """The server while the ``with`` block runs; ``log`` is there after it."""

    def __init__(self, corpus: Corpus, *, gzip: bool = False, certificate: Path | None = None) -> None:
        self._corpus = corpus
        self._certificate = certificate
        self.scheme = "https" if certificate else "http"
        self._gzip = gzip
        self.log: Log = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        pages, self._log_path = Path(self._folder.name) / "pages", Path(self._folder.name) / "log"
        pages.write_bytes(msgspec.msgpack.encode(self._corpus))
        self._child = subprocess.Popen(
            [
                *(sys.executable, __file__, str(pages), str(self._log_path)),
                *("gzip" if self._gzip else "plain", str(self._certificate or "")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._child.stdout is not None
        self.port = int(self._child.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # The server ends with its input.
            self._child.communicate(timeout=_STOP_WITHIN_S)
            self.log = [(at_s, url, status) for at_s, url, status in json.loads(self._log_path.read_text())]
        finally:
            self._child.kill()
            self._child.wait()
            self._folder.cleanup()


async def _serve(corpus: Corpus, *, gzip: bool, certificate: str) -> Log:
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    loop = asyncio.get_running_loop()
    log: Log = []
    robots = _answer("200 OK", "text/plain", _ROBOTS, gzip=False)
    missing = _answer("404 Not Found", "text/html", b"<html><body>no such page</body></html>", gzip=False)
    servers, port = [], 0
    for number, site in enumerate(corpus.sites):
        answers = {
            path.encode(): _answer("200 OK", "text/html; charset=utf-8", body, gzip=gzip)
            for path, body in site.pages.items()
        }
        answers[b"/robots.txt"] = robots
        host = address(number)
        visit = partial(_Visit, host, answers, missing, log)
        servers.append(await loop.create_server(visit, host, port, backlog=1024, ssl=tls))
        port = servers[0].sockets[0].getsockname()[1]
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()
    scheme = "https" if certificate else "http"
    return [(at_s, _url(scheme, where, port), status) for at_s, where, status in log]


def _url(scheme: str, where: str, port: int) -> str:
    host, slash, path = where.partition("/")
    return f"{scheme}://{host}:{port}{slash}{path}"


if __name__ == "__main__":
    served = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=Corpus)
    asked = uvloop.run(_serve(served, gzip=sys.argv[3] == "gzip", certificate=sys.argv[4]))
    Path(sys.argv[2]).write_text(json.dumps(asked))
