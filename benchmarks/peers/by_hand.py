"""A crawler written by hand for speed: two processes, ``fetch`` and ``parse``, two Redis lists between them.

The bar. It has no politeness, no robots.txt, no retries, no limits, and a crash loses what was in flight;
what is left is done the fastest way known: batches both ways, aiohttp on uvloop, lexbor, links joined by ada
after duplicates within a page are gone, a set in memory for those seen, JSON lines. ``main`` has it store the
main text of a page, as resiliparse finds it in the tree that also gives the links; without it, all text.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any

import ada_url
import aiohttp
import msgspec
import redis
import redis.asyncio
import uvloop
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree
from selectolax.lexbor import LexborHTMLParser

URLS, PAGES = "hand:urls", "hand:pages"
#: In place of a list of URLs: there will be no more.
END = b""
CONNECTIONS = 64
PER_HOST = 8
BATCH = 32
MOST_BODY_BYTES = 2_000_000
_WAIT_S = 5
_UNSEEN = ["script", "style", "noscript", "template"]


async def fetch(redis_url: str) -> None:
    # It waits, and pages may take longer to bring new URLs than redis-py would.
    client = redis.asyncio.Redis.from_url(redis_url, socket_timeout=None)
    urls: asyncio.Queue[str] = asyncio.Queue()
    done: list[bytes] = []
    has_done = asyncio.Event()
    pack = msgspec.msgpack.Encoder().encode

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            url = await urls.get()
            async with session.get(url, allow_redirects=False) as response:
                body = (await response.read())[:MOST_BODY_BYTES]
                done.append(pack((url, response.status, response.charset or "utf-8", body)))
            has_done.set()

    async def ship() -> None:
        shipper = redis.asyncio.Redis.from_url(redis_url)
        while True:
            await has_done.wait()
            has_done.clear()
            while done:
                batch, done[:] = done[:BATCH], done[BATCH:]
                await shipper.rpush(PAGES, *batch)

    connector = aiohttp.TCPConnector(limit=CONNECTIONS, limit_per_host=PER_HOST)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        tasks = [asyncio.create_task(work(session)) for _ in range(CONNECTIONS)]
        tasks.append(asyncio.create_task(ship()))
        while True:
            popped: Any = await client.blpop([URLS], _WAIT_S)
            if popped is None:
                continue
            if popped[1] == END:
                break
            for url in popped[1].decode().split("\n"):
                urls.put_nowait(url)
        for task in tasks:
            task.cancel()


def parse(redis_url: str, seeds: list[str], store: Path, *, is_main: bool) -> None:
    read = read_main if is_main else read_page
    client = redis.Redis.from_url(redis_url, socket_timeout=None)
    seen = set(seeds)
    to_come = len(seen)
    client.rpush(URLS, "\n".join(seeds))
    unpack = msgspec.msgpack.Decoder(tuple[str, int, str, bytes]).decode
    to_json = msgspec.json.Encoder().encode
    with store.open("wb", buffering=1 << 20) as lines:
        while to_come:
            batch: Any = client.lpop(PAGES, BATCH) or client.blpop([PAGES])[1:]  # type: ignore[index]
            new: list[str] = []
            for data in batch:
                url, status, charset, body = unpack(data)
                # Lexbor takes UTF-8 as it is.
                html = body if charset.lower() == "utf-8" else body.decode(charset, "replace")
                page, links = read(url, status, html)
                lines.write(to_json(page) + b"\n")
                for link in links:
                    if link not in seen:
                        seen.add(link)
                        new.append(link)
            to_come += len(new) - len(batch)
            if new:
                client.rpush(URLS, "\n".join(new))
    client.rpush(URLS, END)


def read_page(url: str, status: int, html: str | bytes) -> tuple[dict[str, object], list[str]]:
    tree = LexborHTMLParser(html)
    hrefs = {(node.attrs.get("href") or "").partition("#")[0] for node in tree.css("a[href], area[href]")}
    title = tree.css_first("title")
    page = {"url": url, "status": status, "title": title.text() if title else None}
    tree.strip_tags(_UNSEEN)
    page["text"] = tree.body.text(separator=" ", strip=True) if tree.body else ""
    return page, join(url, hrefs)


def read_main(url: str, status: int, html: str | bytes) -> tuple[dict[str, object], list[str]]:
    tree = HTMLTree.parse(html if isinstance(html, str) else html.decode("utf-8", "replace"))
    nodes = tree.document.query_selector_all("a[href], area[href]")
    hrefs = {(node.getattr("href") or "").partition("#")[0] for node in nodes}
    text = extract_plain_text(tree, main_content=True)
    return {"url": url, "status": status, "title": tree.title, "text": text}, join(url, hrefs)


def join(url: str, hrefs: set[str]) -> list[str]:
    hrefs.discard("")
    links = []
    for href in hrefs:
        try:
            link = ada_url.join_url(url, href)
        except ValueError:
            continue
        if link.startswith("http"):
            links.append(link)
    return links


if __name__ == "__main__":
    # Nothing here makes cycles worth looking for.
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)
    if sys.argv[1] == "fetch":
        uvloop.run(fetch(sys.argv[2]))
    else:
        is_main = sys.argv[5:] == ["main"]
        parse(sys.argv[2], Path(sys.argv[3]).read_text().split(), Path(sys.argv[4]), is_main=is_main)
