"""The speed of a crawl, its progress as one line, and tables as plain text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from crawlproj.config import Config
from crawlproj.frontier.scope import SiteList
from crawlproj.runs.overview import LITTLE_DISK_BYTES

#: The window of the current rate.
_RECENT_S = 10.0


class Pace:
    """Pages fetched per second: currently, and on average. Time is an argument."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, fetched: int) -> None:
        self._first = self._first or (now_s, fetched)
        self._recent.append((now_s, fetched))
        while len(self._recent) > 2 and self._recent[1][0] <= now_s - _RECENT_S:
            self._recent.popleft()

    @property
    def recent(self) -> float:
        """Pages per second over the last ten seconds or so."""
        return _rate(self._recent[0], self._recent[-1]) if self._recent else 0.0

    @property
    def whole(self) -> float:
        """Pages per second since the first sample."""
        return _rate(self._first, self._recent[-1]) if self._first else 0.0


def _rate(first: tuple[float, int], last: tuple[float, int]) -> float:
    seconds = last[0] - first[0]
    return (last[1] - first[1]) / seconds if seconds > 0 else 0.0


def start_phrase(new: int, waiting: int, spider: str = "web", *, was_finished: bool = False) -> str:
    """Return what a run begins with: *new* seeds, what is *waiting*, or what its *spider* asks for."""
    if new:
        return f"new seeds: {new:,}"
    if was_finished:
        return f"it had finished; looking for new start requests of spider {spider}"
    if spider != "web" and not waiting:
        return f"starting with the requests of spider {spider}"
    return f"resuming with {waiting:,} URLs waiting"


def scope_phrase(config: Config, sites: SiteList) -> str:
    """Return which links a run follows, and how to change that."""
    depth = f", at most {config.depth_limit} links from a seed" if config.depth_limit else ""
    if config.scope == "sites":
        names = f"{' and '.join(sites.names)} and hosts below" if sites.names else f"{sites.count:,} sites"
        return f"follows links within {names}{depth}; to follow all links: --scope everything"
    where = {
        "everything": "all links, to any site",
        "domain": "links within the domain of each page",
        "host": "links within the host of each page",
        "list": f"links to {', '.join(config.scope_domains)}",
        "seeds": "no links",
    }[config.scope]
    return f"follows {where}{depth}; to change that: --scope"


def progress_line(status: dict[str, Any], pages_per_s: float, seconds: float, ahead: object = None) -> str:
    """Return the progress; *ahead*, if given, says how far it is and how long it will take."""
    return (
        f"{seconds:4.0f} s  fetched {status['fetched']:,}  {stored_phrase(status)}  "
        f"queued {status['pages_queued']:,}  waiting {status['waiting']:,}  leased {status['leased']:,}  "
        f"failed {status['failed']:,}  {pages_per_s:,.0f} pages/s"
        + (f"  {ahead}" if ahead else "")
        + "".join(f"\n{line}" for line in room_lines(status))
    )


def stored_phrase(status: dict[str, Any]) -> str:
    """Return how many pages are stored: in closed files, and in those that parsers are writing."""
    stored, open_ = status["pages_stored"], status["pages_being_parsed"]
    return f"stored {stored:,}" + (f" + {open_:,} in open files" if open_ else "")


def room_lines(status: dict[str, Any]) -> list[str]:
    """Return what to know when Redis or a disk is short of room, and of the links that wait for it."""
    lines = [status["redis_full"]] if status.get("redis_full") else []
    lines += [
        f"the disk of {disk['host']} has {disk['free_bytes'] / 1e6:,.0f} MB left; its parsers wait when full"
        for disk in status.get("disks", ())
        if disk["free_bytes"] < LITTLE_DISK_BYTES
    ]
    if why := status.get("storage_waits"):
        lines.append(f"pages cannot be stored, parsers wait: {why}")
    if status.get("admission_waits"):
        used, most = (status[f"redis_memory_{name}"] / 1e6 for name in ("bytes", "max_bytes"))
        lines.append(
            f"Redis is short of room ({used:,.1f} MB of {most:,.1f} MB): new links wait on disk, pages drain"
        )
    if spilled := status.get("links_spilled"):
        lines.append(f"links on disk, to be admitted when Redis has room: {spilled:,}")
    return lines


def aligned(rows: Sequence[Sequence[str]], left: Iterable[int] = (0, -1)) -> list[str]:
    """Return *rows* as lines, the columns numbered in *left* left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    formats = [f">{width}" for width in widths]
    for number in left:
        formats[number] = f"<{widths[number]}"
    return ["  ".join(map(format, row, formats)).rstrip() for row in rows]
