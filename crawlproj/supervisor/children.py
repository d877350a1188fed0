"""The child processes of a crawl: started, watched, stopped in the right order, their logs in files."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: How long after its request to stop a child may still take, beyond what it was given to drain.
_GRACE_S = 10.0
#: A line of a log at ERROR, or what a command says when it gives up.
_ERROR = re.compile(r"\] ERROR: (?P<words>.*)|^(?P<command>scrapy \w+: .*)")


@dataclass(slots=True)
class Child:
    name: str
    arguments: Sequence[str]
    log: Path
    process: Process | None = None
    #: How much of its log was looked at.
    read_bytes: int = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.read_bytes = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "scrapy.cmdline", *self.arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the supervisor, who stops its children in order.
                start_new_session=True,
            )

    async def stop(self, within_s: float) -> None:
        """Ask the child to stop; kill it when it does not in time."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s + _GRACE_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def new_errors(self) -> list[str]:
        """Return what its log says at ERROR since this was last asked, without time and name."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self.read_bytes)
            lines = log.read().rpartition(b"\n")[0]
        self.read_bytes += len(lines) + bool(lines)
        found = (_ERROR.search(line) for line in lines.decode(errors="replace").splitlines())
        return [match["words"] or match["command"] for match in found if match]


@dataclass(slots=True)
class Children:
    """Shards feed, parsers finish: shards stop first, so that no page is left behind."""

    shards: list[Child] = field(default_factory=list)
    parsers: list[Child] = field(default_factory=list)

    @property
    def all(self) -> list[Child]:
        return [*self.shards, *self.parsers]

    async def start(self) -> None:
        for child in self.all:
            await child.start()

    def failed(self) -> Child | None:
        """Return a child that ended with an error."""
        return next((c for c in self.all if c.process is not None and c.process.returncode), None)

    def kill(self) -> None:
        """End all at once. What they held is found by whoever comes next."""
        for child in self.all:
            if child.process is not None and child.process.returncode is None:
                child.process.kill()

    async def stop(self, within_s: float) -> None:
        await asyncio.gather(*(shard.stop(within_s) for shard in self.shards))
        await asyncio.gather(*(parser.stop(within_s) for parser in self.parsers))
