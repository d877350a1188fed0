"""The child processes of a crawl: started, watched, stopped in the right order, their logs in files."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: How long after its request to stop a child may still take, beyond what it was given to drain.
_GRACE_S = 10.0


@dataclass(slots=True)
class Child:
    name: str
    arguments: Sequence[str]
    log: Path
    process: Process | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
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

    def last_error(self) -> str:
        """Return the last line its log has at ERROR, or its last line at all."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        errors = [line for line in lines if "ERROR" in line or line.startswith("scrapy")]
        return (errors or lines or ["it said nothing"])[-1]


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

    async def stop(self, within_s: float) -> None:
        await asyncio.gather(*(shard.stop(within_s) for shard in self.shards))
        await asyncio.gather(*(parser.stop(within_s) for parser in self.parsers))
