"""Spilled links: while Redis is short of room, the links of parsed pages wait in files on disk.

A spill file is written beside a segment and recorded in the step that commits it, so its links exist as long
as their pages would otherwise: after a crash the record decides whether the file counts. When there is room
again, its links are admitted, which may be done twice. Only then is the record removed. The file is kept
until the run ends: if Redis is set back to older data, its record is there again.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from crawlproj.errors import RedisFull, StoreUnavailable
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate
from crawlproj.model.run import RunState
from crawlproj.model.spill import SpillRecord
from crawlproj.redisio import keys
from crawlproj.redisio.room import brim_of
from crawlproj.redisio.stripes import read_hash
from crawlproj.redisio.watch import LOOK_S, RoomWatch
from crawlproj.runs import Run
from crawlproj.storage.partfile import PartFile, lock_file, lock_new_file, sync_directory

logger = logging.getLogger(__name__)

#: Appended to the name of a file whose links were admitted.
ADMITTED = ".admitted"
#: Links admitted together; between two batches the memory of Redis is read.
_BATCH = 1000
_NAME = re.compile(r"(?P<parser>.+)-\d{6,}\.links")


class SpillWriter:
    """Writes links into files in *directory*, one after the other, each for a segment of *parser*.

    Methods raise StoreUnavailable when the disk does not take them: `discard`, and start again.
    """

    def __init__(self, directory: Path, parser: str) -> None:
        self._directory = directory
        self._parser = parser
        self._number = 0
        self._links = 0
        self._file: PartFile | None = None
        #: Of the open file, sealed or not: nobody removes it while this parser lives.
        self._lock: int | None = None

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def name(self) -> str:
        return f"{self._parser}-{self._number:06d}.links"

    def append(self, candidates: Iterable[Candidate], traps: Mapping[str, tuple[int, str]]) -> None:
        """Write links, and those that look like traps, into the open file; starts one when none is open."""
        links = [(link.url, link.depth, link.extra.encode(), "") for link in candidates]
        links += ((url, depth, "", reason) for url, (depth, reason) in traps.items())
        with _disk_errors(self._directory):
            if self._file is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._number += 1
                self._file = PartFile(self._directory / self.name)
                self._lock = lock_new_file(self._file.path)
            self._file.write("".join(f"{json.dumps(link)}\n" for link in links).encode())
        self._links += len(links)

    def seal(self) -> tuple[str, str]:
        """Return the name of the open file, which is on disk now, and its record; '' twice without one."""
        if self._file is None:
            return "", ""
        with _disk_errors(self._directory):
            if not self._file.closed:
                self._file.sync_and_close()
                sync_directory(self._directory)
        return self.name, SpillRecord(self._links, socket.gethostname()).encode()

    def forget(self) -> None:
        """The open file is recorded."""
        if self._lock is not None:
            os.close(self._lock)
        self._file, self._lock, self._links = None, None, 0

    def start_over(self, parser: str) -> None:
        """Continue under the name *parser*, without the open file."""
        self.discard()
        self._parser = parser

    def discard(self) -> None:
        """Remove the open file: its pages will be parsed again. Never raises.

        One that is sealed may be recorded, although we have no answer: it is left to `remove_abandoned`.
        """
        if self._file is not None and not self._file.closed:
            self._file.abandon()
            _remove(self._file.path)
        self.forget()


class SpilledLinks:
    """Admits the links of recorded spill files in *directory*, the oldest file first, when there is room.

    There is none, and links are spilled, while Redis uses *share* of its memory or more: see ``room``. A file
    is read by one parser at a time.
    """

    def __init__(
        self,
        run: Run,
        frontier: Frontier,
        directory: Path,
        share: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._frontier = frontier
        self._directory = directory
        self.room = RoomWatch(run.client, share, clock)
        self._brim = RoomWatch(run.client, brim_of(share), clock)
        self._clock = clock
        self._looked_s = -math.inf
        self._name = ""
        #: Open, and locked, while its links are being admitted.
        self._file: BinaryIO | None = None
        self._has_warned = self._is_filling = False

    async def admit(self, *, is_idle: bool) -> int | None:
        """Admit a batch of links, if there are any and Redis has room; returns how many were new.

        None: nothing was done. *is_idle*: there were no pages to parse. Raises SetBack: `start_over` then.
        """
        file = self._file or await self._open_oldest()
        if file is None or not await self._may_admit(is_idle):
            return None
        start = file.tell()
        batch = list(islice(file, _BATCH))
        if not batch:
            await self._finish()
            return 0
        try:
            new = await self._admit(batch)
        except RedisFull as exc:
            file.seek(start)
            self.room.note_full()
            self._is_filling = False
            # If some were admitted before it was full, the crawl continues.
            if not self._has_warned and await self._is_rest():
                self._has_warned = True
                logger.error("links on disk cannot be admitted, the URLs seen so far fill Redis: %s", exc)
            return None
        self._has_warned = False
        return new

    async def remove_abandoned(self, living: Callable[[], Awaitable[Collection[str]]]) -> None:
        """Remove files of dead parsers that are not recorded: their pages are parsed again.

        Not those of parsers that are only silent: if Redis is set back, they may yet record them.
        """
        # In this order: the file of a parser that just started or committed would look abandoned.
        paths = {path: match for path in self._files() if (match := _NAME.fullmatch(path.name))}
        if not paths:
            return
        alive, recorded = await living(), await self._recorded()
        for path, match in paths.items():
            if match["parser"] in alive or path.name in recorded:
                continue
            if (lock := lock_file(path)) is not None:
                _remove(path)
                os.close(lock)
                logger.warning("removed links that were not committed: %s", path.name)

    async def close(self) -> None:
        """Leave the rest to other parsers. The last one of a run that has ended removes what was kept."""
        self.start_over()
        kept = [path for path in self._files() if path.suffix == ADMITTED]
        if kept and (await self._run.state() in ("", *(state for state in RunState if state.is_end))):
            recorded = await self._recorded()
            for path in kept:
                if path.name.removesuffix(ADMITTED) not in recorded:
                    _remove(path)

    async def _open_oldest(self) -> BinaryIO | None:
        """Open and lock the oldest recorded file that no other parser reads."""
        if self._clock() - self._looked_s < LOOK_S:
            return None
        self._looked_s = self._clock()
        recorded = await self._recorded()
        if not recorded:
            return None
        for path in self._files():
            name = path.name.removesuffix(ADMITTED)
            if name in recorded and (lock := lock_file(path)) is not None:
                file = os.fdopen(lock, "rb")
                # Another parser may have admitted it meanwhile.
                if name in await self._recorded():
                    self._name, self._file = name, file
                    return file
                file.close()
        return None

    async def _may_admit(self, is_idle: bool) -> bool:
        """Whether Redis has room, or waiting for it is in vain because only spilled links are left.

        Then what is left of its memory is used, half of it: the URLs seen so far do not become fewer.
        """
        if not (await self.room.is_short() or await self.room.look()):
            return True
        if is_idle and await self._is_rest():
            self._is_filling = True
        elif self._is_filling:
            self._is_filling = not await self._brim.look()
        return self._is_filling

    async def _is_rest(self) -> bool:
        """Whether nothing is left of the run but spilled links."""
        counters = await self._run.read_counters()
        return counters.outstanding == counters.spilled

    async def _admit(self, lines: list[bytes]) -> int:
        candidates: list[Candidate] = []
        traps: dict[str, tuple[int, str]] = {}
        for line in lines:
            try:
                url, depth, extra, trap = json.loads(line)
            except ValueError:
                logger.error("ignoring a damaged line of %s", self._name, extra={"line": repr(line[:200])})
                continue
            if trap:
                traps[url] = depth, trap
            else:
                candidates.append(Candidate(url, depth, extra=Extra.decode(extra)))
        admitted = await self._frontier.admit(candidates, waits_for_room=False)
        await self._frontier.trap(traps, waits_for_room=False)
        return admitted.new

    async def _finish(self) -> None:
        """Remove the record of the open file, after the file has its other name.

        In the other order the file would look abandoned after a crash, and a record that is there again
        would find nothing.
        """
        path = self._directory / self._name
        with _disk_errors(self._directory):
            if path.exists():
                path.rename(path.with_name(path.name + ADMITTED))
                sync_directory(self._directory)
        for stripe in self._run.client.stripes:
            spills = keys.spills(self._run.name, stripe)
            await self._run.client.command("HDEL", spills, self._name, generation=self._frontier.generation)
        logger.info("spilled links admitted: %s", self._name)
        self.start_over()

    def start_over(self) -> None:
        """Read the open file again from its beginning: Redis was set back, and may have lost its links."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._looked_s = -math.inf

    async def _recorded(self) -> set[str]:
        return set(await read_hash(self._run.client, self._run.name, keys.spills))

    def _files(self) -> list[Path]:
        """Return the files here, the oldest first."""
        written: dict[Path, int] = {}
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                try:
                    written[path] = path.stat().st_mtime_ns
                except FileNotFoundError:
                    # Renamed or removed by another parser.
                    continue
        return sorted(written, key=written.__getitem__)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        logger.warning("cannot remove links that are not needed, the next parser will: %s", exc)


@contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StoreUnavailable(
            f"Cannot write links to {exc.filename or directory}: {exc.strerror or exc}. "
            "Free some space, or make the directory writable."
        ) from exc
