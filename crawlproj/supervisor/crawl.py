"""One crawl on this machine from seeds to the end: `scrapy run`, in its first form.

A child that dies ends the crawl with its last words; the same command goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawlproj.config import Config
from crawlproj.errors import CrawlError
from crawlproj.redisio.client import Door
from crawlproj.runs import Run, status_of
from crawlproj.supervisor.children import Child, Children
from crawlproj.supervisor.progress import Progress

#: Shells expect 128 + SIGINT of what was interrupted.
EXIT_INTERRUPTED = 130
_LOOK_EVERY_S = 0.5


@dataclass(slots=True)
class Crawl:
    """A run, its directory and its processes. ``settings`` are handed on to every child."""

    run: Run
    config: Config
    shards: int
    parsers: int
    settings: Mapping[str, str] = field(default_factory=dict)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def directory(self) -> Path:
        return run_directory(self.config.data, self.run.name)

    async def go(self) -> tuple[int, dict[str, Any]]:
        """Run until the end, an interrupt or a child's death. Returns the exit code and the last status."""
        children = self._children()
        loop = asyncio.get_running_loop()
        progress = Progress(sys.stderr)
        errors: dict[str, str] = {}

        def asked_to_stop() -> None:
            if self._stop.is_set():
                progress.say("stopping now")
                children.kill()
            else:
                drain_s = self.config.drain_seconds
                progress.say(f"stopping: downloads in flight get {drain_s:g} s; Ctrl-C again stops now")
                self._stop.set()

        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, asked_to_stop)
        try:
            await children.start()
            while any(child.is_running for child in children.all):
                for child in children.all:
                    for error in child.new_errors():
                        errors[child.name] = error
                        progress.say(f"{child.name}: {error}")
                if self._stop.is_set() or children.failed():
                    break
                progress.show(await status_of(self.run))
                try:
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        await self._stop.wait()
                except TimeoutError:
                    continue
        finally:
            await children.stop(self.config.drain_seconds)
            for signum in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(signum)
        status = await status_of(self.run)
        status["seconds"] = round(progress.end(), 1)
        failed = children.failed()
        if failed is not None and failed.process is not None and not self._stop.is_set():
            for error in failed.new_errors():
                errors[failed.name] = error
            words = errors.get(failed.name, "it said nothing")
            raise ChildDied(failed.name, failed.process.returncode or 0, words, failed.log)
        return (EXIT_INTERRUPTED if self._stop.is_set() else 0), status

    def _children(self) -> Children:
        logs = self.directory / "logs"
        common = [f"--set={name}={value}" for name, value in self.settings.items()]
        return Children(
            [
                Child(
                    f"shard {number}",
                    ["crawl", "web", f"-ashard={number}", f"-arun={self.run.name}", *common],
                    logs / f"shard-{number}.log",
                )
                for number in range(self.shards)
            ],
            [
                Child(
                    f"parser {number}",
                    ["parser", "--run", self.run.name, *common],
                    logs / f"parser-{number}.log",
                )
                for number in range(self.parsers)
            ],
        )


class ChildDied(CrawlError):
    """A process of the crawl ended with an error; its exit code is ours."""

    def __init__(self, name: str, code: int, words: str, log: Path) -> None:
        self.exit_code = code if code > 0 else 1
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        super().__init__(
            f"{name} ended with {how}: {words}\nIts log: {log}. The same command goes on from here."
        )


def run_directory(data: Path, run: str) -> Path:
    return data / "runs" / run


async def fresh_run_name(door: Door, stem: str) -> str:
    """Return *stem*, or with a number behind it, of a run that is new or not finished yet."""
    number = 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        if await Run(door, name, 1).state() != "finished":
            return name
        number += 1


def changed_settings(pairs: Sequence[str]) -> dict[str, str]:
    """Return the ``NAME=VALUE`` of -s as a mapping."""
    return dict(pair.split("=", 1) for pair in pairs)
