"""The crawlers that `versus` compares: how each is started, and how what it stored is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import redis

from crawlproj.storage.reader import read_pages

HERE = Path(__file__).parent
PROJECT = HERE.parent

Stored = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Job:
    """One crawl to do: where its seeds, its Redis and a place for its files are."""

    folder: Path
    seeds: Path
    redis_url: str
    #: A certificate authority to trust besides the usual ones.
    authority: Path | None = None

    def start(self, words: list[str], *, cwd: Path, imports: list[Path]) -> subprocess.Popen[bytes]:
        with (self.folder / "output.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=cwd,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(map(str, imports))}
                | ({"SSL_CERT_FILE": str(self.authority)} if self.authority else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start_peer(self, words: list[str]) -> subprocess.Popen[bytes]:
        # Outside the project: none of our settings may reach it.
        return self.start(words, cwd=self.folder, imports=[HERE / "peers"])


@dataclass(frozen=True, slots=True)
class Crawler:
    name: str
    start: Callable[[Job], list[subprocess.Popen[bytes]]]
    read: Callable[[Path], Stored]
    kind_of: Callable[[str], str] = lambda command: "fetch"
    #: Whether all visible words are stored, or only those that the page is about.
    text: Literal["all", "main"] = "all"
    aof: bool = False
    #: What its parsers write, where others fetch: its last change is the end of the job.
    written: str = ""

    def last_write_s(self, folder: Path) -> float:
        """When the last page was written, by the monotonic clock; 0 if unknown."""
        if not self.written:
            return 0.0
        last_s = max(path.stat().st_mtime for path in folder.glob(self.written))
        return last_s - time.time() + time.monotonic()


def start_stock(job: Job) -> list[subprocess.Popen[bytes]]:
    spider = [str(HERE / "peers" / "stock.py"), "-a", f"seeds={job.seeds}"]
    return [job.start_peer(["-m", "scrapy", "runspider", *spider, "-O", str(job.folder / "pages.jsonl")])]


def start_scrapy_redis(job: Job, processes: int) -> list[subprocess.Popen[bytes]]:
    with redis.Redis.from_url(job.redis_url) as client:
        client.rpush("pages:start_urls", *job.seeds.read_text().split())
    spider = [str(HERE / "peers" / "with_scrapy_redis.py"), "-s", f"REDIS_URL={job.redis_url}"]
    return [
        job.start_peer(
            ["-m", "scrapy", "runspider", *spider, "-O", str(job.folder / f"pages-{number}.jsonl")]
        )
        for number in range(processes)
    ]


def start_by_hand(job: Job, *text: str) -> list[subprocess.Popen[bytes]]:
    program, store = str(HERE / "peers" / "by_hand.py"), str(job.folder / "pages.jsonl")
    return [
        job.start_peer([program, "fetch", job.redis_url]),
        job.start_peer([program, "parse", job.redis_url, str(job.seeds), store, *text]),
    ]


def kind_by_hand(command: str) -> str:
    return "fetch" if "by_hand.py fetch" in command else "parse"


def start_ours(job: Job, shards: int, text: str | None) -> list[subprocess.Popen[bytes]]:
    settings = {
        "REDIS_URL": job.redis_url,
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "CRAWL_SCOPE": "everything",
        "DOWNLOAD_DELAY": "0",
        # Otherwise a domain rests as long as its last answer took.
        "CRAWL_DELAY_FACTOR": "0",
    } | ({"CRAWL_TEXT": text} if text else {})
    run = [str(job.seeds), "--data", str(job.folder / "data"), "--shards", str(shards)]
    # As many parsers: with one alone, two shards would wait for it.
    run += ["--parsers", str(shards)]
    words = [word for pair in settings.items() for word in ("-s", "=".join(pair))]
    return [job.start(["-m", "scrapy", "run", *run, *words], cwd=PROJECT, imports=[PROJECT])]


def kind_ours(command: str) -> str:
    if " crawl web" in command or command.startswith("shard"):
        return "fetch"
    return "parse" if " parser " in command or command.startswith("parser") else "supervisor"


def read_lines(folder: Path) -> Stored:
    for path in folder.glob("pages*.jsonl"):
        with path.open() as lines:
            for line in lines:
                page = json.loads(line)
                yield page["url"], page["text"]


def read_ours(folder: Path) -> Stored:
    for page in read_pages(folder / "data" / "runs" / "web" / "pages", ["url", "text", "truncated"]):
        if page["truncated"]:
            raise RuntimeError(f"crawlproj cut {page['url']}; its peers have read all of it.")
        yield page["url"], page["text"] or ""


_STOCK = Crawler("stock Scrapy", start_stock, read_lines)
_SCRAPY_REDIS = Crawler("scrapy-redis", lambda job: start_scrapy_redis(job, 1), read_lines)
_TWO_SCRAPY_REDIS = Crawler("scrapy-redis, 2 processes", lambda job: start_scrapy_redis(job, 2), read_lines)


def _ours(name: str, shards: int, text: Literal["all", "main"]) -> Crawler:
    setting = "all" if text == "all" else None
    return Crawler(
        name,
        lambda job: start_ours(job, shards, setting),
        read_ours,
        kind_ours,
        text,
        aof=True,
        written="data/runs/web/pages/*",
    )


#: Peers that store all text come with ours doing that, too.
ALL_TEXT = (
    _STOCK,
    _SCRAPY_REDIS,
    _TWO_SCRAPY_REDIS,
    Crawler("by hand", start_by_hand, read_lines, kind_by_hand, written="pages.jsonl"),
    _ours("crawlproj", 1, "all"),
    _ours("crawlproj, 2 shards", 2, "all"),
    _ours("crawlproj, main text", 1, "main"),
    _ours("crawlproj, main text, 2 shards", 2, "main"),
)
#: Ours at its defaults, which find the main text, as does the crawler by hand; Scrapy has no such thing.
MAIN_TEXT = (
    _STOCK,
    _SCRAPY_REDIS,
    _TWO_SCRAPY_REDIS,
    Crawler(
        "by hand",
        lambda job: start_by_hand(job, "main"),
        read_lines,
        kind_by_hand,
        "main",
        written="pages.jsonl",
    ),
    _ours("crawlproj", 1, "main"),
    _ours("crawlproj, 2 shards", 2, "main"),
)
