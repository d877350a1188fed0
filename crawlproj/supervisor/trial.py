"""A crawl by `scrapy run` as a process of its own, watched and measured for `scrapy compare`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawlproj.config import Config
from crawlproj.errors import CrawlError
from crawlproj.model.run import RunPaths, RunState
from crawlproj.observe.tree import tree_memory_bytes
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.room import info_fields
from crawlproj.runs import Run, status_of
from crawlproj.runs.overview import overview_of
from crawlproj.runs.processes import live_processes, parser_silence_s
from crawlproj.runs.reasons import failure_lines
from crawlproj.supervisor.forkpool import ForkPool, Started
from crawlproj.supervisor.stopsignals import StopSignals
from crawlproj.supervisor.summary import ended_fruitless
from crawlproj.supervisor.view import View

_LOOK_S = 1.0


class TrialFailed(CrawlError):
    """A crawl that cannot be compared; its exit code becomes ours."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Trial:
    """A crawl to be run. ``shards`` is 0 for single mode."""

    run: str
    shards: int

    @property
    def name(self) -> str:
        if not self.shards:
            return "single"
        return f"{self.shards} shards" if self.shards > 1 else "1 shard"

    @property
    def options(self) -> list[str]:
        return ["--shards", str(self.shards)] if self.shards else ["--shards", "1", "--parsers", "0"]


@dataclass(slots=True)
class Outcome:
    """How a trial ended. ``status`` is what `scrapy run --json` printed; empty if it was interrupted."""

    status: dict[str, Any] = field(default_factory=dict)
    #: CPU of Redis, and by how much its memory grew at most: of all its clients.
    redis_cpu_s: float = 0.0
    redis_bytes: int = 0
    #: The most that all processes had at once.
    memory_bytes: int = 0


class TrialRun:
    """One trial: call `crawl` once. *settings* go to `scrapy run`, and *max_pages* of 0 is no limit."""

    def __init__(
        self,
        trial: Trial,
        client: RedisClient,
        config: Config,
        settings: Mapping[str, str],
        max_pages: int,
    ) -> None:
        self.trial = trial
        self.paths = RunPaths(config.data, trial.run)
        self._client = client
        self._settings = settings
        self._max_pages = max_pages
        self._output = self.paths.logs / "compare.out"
        self._view = View(sys.stderr)
        # The same for every trial: reading it costs Redis time.
        self._read_status = overview_of if sys.stderr.isatty() else status_of
        self._run: Run | None = None

    async def crawl(self, seeds: Path, stops: StopSignals) -> Outcome:
        """Crawl the seeds in the file *seeds*, stopping in order when asked to. Raises TrialFailed."""
        outcome = Outcome()
        self.paths.logs.mkdir(parents=True, exist_ok=True)
        before_s, before_bytes = await self._read_redis()
        process = ForkPool().start(f"run {self.trial.run}", self._arguments(seeds), self._output)
        stopped = 0
        try:
            while (code := process.poll()) is None:
                await stops.wait(_LOOK_S)
                if stopped < stops.count:
                    stopped += 1
                    self._view.notify("stopping the crawl; Ctrl-C again stops it now")
                    process.send_signal(signal.SIGINT)
                await self._look(process, outcome, before_bytes)
        finally:
            # Only if we fail ourselves: its shards and parsers end with it.
            if process.poll() is None:
                process.kill()
            self._view.end()
        outcome.redis_cpu_s = (await self._read_redis())[0] - before_s
        if not stopped:
            outcome.status = self._read_result(code)
        return outcome

    def _arguments(self, seeds: Path) -> list[str]:
        limit = ["--max-pages", str(self._max_pages)] if self._max_pages else []
        settings = (f"--set={name}={value}" for name, value in self._settings.items())
        where = ["--run", self.trial.run, "--data", str(self.paths.data), "--json"]
        return ["run", str(seeds), *where, *self.trial.options, *limit, *settings]

    async def _look(self, process: Started, outcome: Outcome, before_bytes: int) -> None:
        """Measure and show the run."""
        memory = await asyncio.to_thread(tree_memory_bytes, process.pid)
        outcome.memory_bytes = max(outcome.memory_bytes, memory)
        grown = (await self._client.read_memory()).used - before_bytes
        outcome.redis_bytes = max(outcome.redis_bytes, grown)
        if self._run is None:
            self._run = await Run.look_up(self._client, self.trial.run)
        if self._run is not None:
            self._view.show(await self._read_status(self._run))

    async def _read_redis(self) -> tuple[float, int]:
        """Return the CPU time and the memory of Redis."""
        fields = info_fields(await self._client.command("INFO", "cpu"))
        cpu_s = float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])
        return cpu_s, (await self._client.read_memory()).used

    def _read_result(self, code: int) -> dict[str, Any]:
        lines = self._output.read_text("utf-8", errors="replace").splitlines()
        results = [line for line in lines if line.startswith('{"run": ')]
        status: dict[str, Any] = json.loads(results[-1]) if results else {}
        if status and ended_fruitless(status):
            why = "\n".join(failure_lines(status, all_kinds=True))
            raise TrialFailed(f"{self.trial.name}: no seed could be fetched.\n{why}", code)
        if code or not status:
            last = next((line for line in reversed(lines) if line not in results and line.strip()), "")
            raise TrialFailed(
                f"{self.trial.name}: the crawl ended with exit code {code}. {last}", code if code > 0 else 1
            )
        return status


async def plan_trials(client: RedisClient, config: Config, stem: str, shards: Sequence[int]) -> list[Trial]:
    """Return a trial for each number of *shards*, 0 for single mode, as runs that do not exist yet."""
    number = 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        trials = [Trial(f"{name}-{count}-shards" if count else f"{name}-single", count) for count in shards]
        if not [trial for trial in trials if await _exists(client, config, trial.run)]:
            return trials
        number += 1


async def _exists(client: RedisClient, config: Config, run: str) -> bool:
    return RunPaths(config.data, run).directory.exists() or bool(await Run(client, run, 1).state())


async def delete_trial(client: RedisClient, config: Config, trial: Trial) -> bool:
    """Delete the run of *trial* and all its files; returns False, having done nothing, if it is in use."""
    # Not at module level: it imports what only parsers need.
    from crawlproj.storage.aside import remove_stored, remove_working_files

    if (run := await Run.look_up(client, trial.run)) is not None:
        if await live_processes(run, parser_silence_s(config)):
            return False
        await run.delete()
    paths = RunPaths(config.data, trial.run)
    remove_stored(paths)
    remove_working_files(paths)
    return True


def reached_limit(status: Mapping[str, Any]) -> str:
    """Return the limit at which a run has ended; '' if nothing was left to do."""
    return "" if status["state"] == RunState.FINISHED else str(status["reason"])
