"""Broken servers that are to be tolerated: their bytes are broken as announced, and their pages are whole."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from urllib.parse import urlsplit

import httptools
import pytest

from crawlproj.simweb.quirks import ANSWERS, PLAIN, QUIRKS, page, serve


async def ask(url: str, target: str = "/") -> bytes:
    parts = urlsplit(url)
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    return answer


async def test_each_quirk_is_served_byte_for_byte_on_a_host_of_its_own() -> None:
    async with serve() as urls:
        answers = {name: await ask(url) for name, url in urls.items()}

    assert answers == ANSWERS
    assert len({urlsplit(url).hostname for url in urls.values()}) == len(QUIRKS) + 1 == 10
    assert all(page(name) in answer for name, answer in answers.items())


async def test_robots_txt_is_an_ordinary_404() -> None:
    async with serve(["lf-only"]) as urls:
        answer = await ask(urls["lf-only"], "/robots.txt")

    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")


def head_of(name: str) -> bytes:
    return ANSWERS[name][: ANSWERS[name].index(b"<html")]


def test_the_quirks_are_what_their_names_say() -> None:
    assert b"X-Powered-By nothing\r\n" in head_of("colonless-header")
    assert head_of("duplicate-length").count(b"Content-Length: ") == 2
    assert {b"Content-Length", b"Transfer-Encoding"} <= {
        line.split(b":")[0] for line in head_of("length-and-chunked").split(b"\r\n")
    }
    assert max(map(len, head_of("long-header-line").split(b"\r\n"))) > 16 * 1024
    with pytest.raises(UnicodeDecodeError):
        head_of("non-utf8-header").decode()
    assert b"X-Name : " in head_of("space-before-colon")
    assert head_of("no-reason-phrase").startswith(b"HTTP/1.1 200\r\n")
    assert b"Content-Length" not in head_of("close-without-length")
    assert b"\r" not in head_of("lf-only")


def test_the_plain_server_has_none() -> None:
    class Collected:
        body = b""

        def on_body(self, data: bytes) -> None:
            self.body += data

    collected = Collected()
    httptools.HttpResponseParser(collected).feed_data(ANSWERS[PLAIN])

    assert collected.body == page(PLAIN)


async def test_as_a_program_it_says_where_they_are_and_ends_on_a_signal() -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "crawlproj.simweb.quirks"), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(20):
        urls = json.loads(await child.stdout.readline())
        answer = await ask(urls["lf-only"])
        child.terminate()
        await child.communicate()

    assert answer == ANSWERS["lf-only"]
    assert child.returncode == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine to compare with")
# curl 7.88 takes a header without a colon for an error.
@pytest.mark.parametrize("name", [name for name in QUIRKS if name != "colonless-header"])
async def test_curl_gets_the_page(name: str) -> None:
    async with serve([name]) as urls:
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-s", "--noproxy", "*", "--max-time", "5", urls[name]), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await curl.communicate()

    assert output == page(name)
