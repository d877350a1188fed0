"""A web server for measuring whole crawls: any 127.a.b.c is a site, with pages of a given size.

Runs as a process of its own, on a free port, until its input ends; then it writes its access log.
Of five links of a page one is new, one leads to another site, and three are those of every page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self, cast

import uvloop

from crawlproj.simweb.words import WORDS

#: Sites that the others link to.
_KNOWN_SITES = 50
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"


def host_of(site: int) -> str:
    return f"127.{1 + (site >> 16)}.{site >> 8 & 255}.{site & 255}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and when it was read: before its answer was sent, so before it ended."""

    host: str
    path: str
    at_s: float


class PageServer:
    """The server while the ``with`` block runs. It ends connections after *close_after* answers (0: none)."""

    def __init__(
        self, *, links: int = 10, page_bytes: int = 10_000, tls: bool = False, close_after: int = 0
    ) -> None:
        self._numbers = [links, page_bytes, close_after]
        self._scheme = "https" if tls else "http"

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._log = Path(self._folder.name) / "log.json"
        certificate = [str(make_certificate(Path(self._folder.name)))] if self._scheme == "https" else []
        self._child = subprocess.Popen(
            [sys.executable, __file__, *map(str, self._numbers), str(self._log), *certificate],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        self.port = int(self._child.stdout.readline())
        self.pid = self._child.pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()

    def url(self, site: int, page: int) -> str:
        return f"{self._scheme}://{host_of(site)}:{self.port}/page/{page}"

    def asked(self) -> list[Asked]:
        """End the server; returns all requests it had, in order."""
        self._stop()
        return [Asked(*entry) for entry in json.loads(self._log.read_text())]

    def _stop(self) -> None:
        if self._child.poll() is None:
            self._child.communicate()


def make_certificate(folder: Path) -> Path:
    """Return a file with a key and a certificate of its own, of the kind most sites have."""
    path = folder / "server.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=bench"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )
    with path.open("a") as file:
        file.write((folder / "key.pem").read_text())
    return path


class Pages:
    """Makes the pages: all have the same words, and between them the links that are their own."""

    def __init__(self, links: int, page_bytes: int, scheme: str, port: int) -> None:
        self._links, self._scheme, self._port = links, scheme, port
        link_bytes = sum(map(len, self._anchors(host_of(0), "1000")))
        words_bytes = max(0, page_bytes - link_bytes - 120)
        random = Random(1)
        parts = max(1, links)
        self._words = [_paragraph(random, words_bytes // parts) for _ in range(parts)]

    def page(self, host: str, name: str) -> bytes:
        anchors = self._anchors(host, name)
        inside = "".join(
            f"<p>{words} {anchor}</p>\n" for words, anchor in zip(self._words, anchors or [""], strict=True)
        )
        return (
            f"<!doctype html><html lang=en><title>Page {name} of {host}</title><body><main>{inside}</main>"
        ).encode()

    def _anchors(self, host: str, name: str) -> list[str]:
        return [f'<a href="{self._target(host, name, number)}">word</a>' for number in range(self._links)]

    def _target(self, host: str, name: str, number: int) -> str:
        if number % 5 == 0:
            return f"/new/{name}-{number}"
        if number % 5 == 1:
            return f"{self._scheme}://{host_of(number % _KNOWN_SITES)}:{self._port}/known/{number}"
        return f"/known/{number}"


def _paragraph(random: Random, size: int) -> str:
    known = WORDS["en"].split()
    words: list[str] = []
    while size > 0:
        words.append(random.choice(known))
        size -= len(words[-1]) + 1
    return " ".join(words)


class _Visit(asyncio.Protocol):
    def __init__(self, pages: Pages, close_after: int, log: list[tuple[str, str, float]]) -> None:
        self._pages, self._log = pages, log
        self._left = close_after or -1
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._host = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        self._request += data
        if not self._request.endswith(b"\r\n\r\n"):
            return
        path = self._request.split(b" ", 2)[1].decode()
        self._request = b""
        self._left -= 1
        self._log.append((self._host, path, time.time()))
        last = b"Connection: close\r\n\r\n" if self._left == 0 else b"\r\n"
        if path == "/robots.txt":
            self._transport.write(_NOT_FOUND + last)
        else:
            body = self._pages.page(self._host, path.rpartition("/")[2])
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n"
            self._transport.write(head % len(body) + last + body)
        if self._left == 0:
            self._transport.close()


async def serve(
    links: int, page_bytes: int, close_after: int, certificate: str
) -> list[tuple[str, str, float]]:
    """Serve until the input ends; returns what was asked for."""
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    # All of 127.0.0.0/8; as the simulated web does.
    listener = socket.create_server(("0.0.0.0", 0), backlog=4096)
    port = listener.getsockname()[1]
    pages = Pages(links, page_bytes, "https" if certificate else "http", port)
    log: list[tuple[str, str, float]] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Visit(pages, close_after, log), sock=listener, ssl=tls)
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
    return log


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for argument in ("links", "page_bytes", "close_after"):
        parser.add_argument(argument, type=int)
    parser.add_argument("log", type=Path)
    parser.add_argument("certificate", nargs="?", default="")
    given = parser.parse_args()
    asked = uvloop.run(serve(given.links, given.page_bytes, given.close_after, given.certificate))
    given.log.write_text(json.dumps(asked))
