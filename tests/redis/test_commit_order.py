"""The order in which a segment reaches the disk and its record reaches Redis, as the system saw it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.config import load_config
from crawlproj.errors import StoreUnavailable
from crawlproj.model.records import Page
from crawlproj.pages.envelope import pack
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.storage.segments import SegmentWriter, recover

RUN = "web"
FORMATS = ["parquet", "jsonl", "warc"]
SUFFIXES = [".parquet", ".jsonl.zst", ".warc.gz"]


@pytest.fixture(autouse=True)
def file_events(events: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every write, fsync and rename of a test's files goes into *events*, between the scripts."""

    def record(name: str, path_of: Callable[[Any], Path]) -> None:
        call = getattr(os, name)

        def recorded(target: Any, *args: Any) -> Any:
            path, answer = path_of(target), call(target, *args)
            if path.is_relative_to(tmp_path):
                events.append(f"{name} {path.name}")
            return answer

        monkeypatch.setattr(os, name, recorded)

    def path_of_fd(fd: int) -> Path:
        return Path(f"/proc/self/fd/{fd}").readlink()

    record("write", path_of_fd)
    record("fsync", path_of_fd)
    record("rename", Path)


async def test_a_segment_is_on_disk_before_it_is_recorded_and_recorded_before_it_is_named(
    client: RedisClient, tmp_path: Path, events: list[str]
) -> None:
    async def is_over() -> bool:
        return True

    page = Page("http://a.test/", RUN, "a.test", 0, 200, 0, 1, {"content-type": "text/html"}, b"<p>text")
    await client.command("RPUSH", keys.pages(RUN), pack(page))
    parser = Parser(
        Run(client, RUN, 4),
        load_config({"PAGE_STORE": ",".join(FORMATS), "CRAWL_DATA": str(tmp_path)}),
        "p",
        is_over,
    )

    await parser.run()

    parts = [f"p-000001{suffix}.part" for suffix in SUFFIXES]
    assert [event for event in events if event.startswith(("fsync", "rename", "commit_segment"))] == [
        *(f"fsync {part}" for part in parts),
        # The names of the parts: the record must not outlive them.
        "fsync pages",
        "commit_segment",
        *(event for part in parts for event in (f"rename {part}", "fsync pages")),
    ]
    for part in parts:
        last_write = len(events) - 1 - events[::-1].index(f"write {part}")
        assert last_write < events.index(f"fsync {part}")


def test_what_recovery_renames_is_on_disk_when_it_returns(tmp_path: Path, events: list[str]) -> None:
    part = tmp_path / "dead-000001.warc.gz.part"
    part.write_bytes(b"recorded")

    recover([part], living=set(), recorded={"dead-000001"})

    assert events[-2:] == [f"rename {part.name}", f"fsync {tmp_path.name}"]


async def test_disk_space_that_is_only_reserved_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that allocates late takes the write and says at fsync that it is full."""

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(StoreUnavailable, match="No space left"):
        await SegmentWriter(tmp_path, "p", FORMATS).check_room()
