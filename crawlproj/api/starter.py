"""Starts the jobs that wait, and starts those again whose processes were killed.

On a machine one server does it, the one that holds the lock in the data directory; between machines a lease
in Redis decides. A supervisor is a process of its own: it outlives the server.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from crawlproj.config import Config
from crawlproj.config.rules import RULES
from crawlproj.errors import (
    EXIT_NO_SEEDS,
    EXIT_RUN_MISMATCH,
    EXIT_SHARD_TAKEN,
    EXIT_USAGE,
    CrawlError,
    RunMismatch,
)
from crawlproj.model.run import RunPaths, RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecord, JobRecords
from crawlproj.runs.processes import read_supervisors

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
_POLL_S = 0.1
#: A lease in Redis lasts this long after the death of a server on another machine.
_LEASE_MS = 15_000
#: How long a supervisor may take until it is seen: it may wait for leftovers of a killed one.
_APPEAR_S = 90.0
#: Exit codes that a restart would end with again.
_FINAL = frozenset({EXIT_USAGE, EXIT_RUN_MISMATCH, EXIT_NO_SEEDS})
#: So many starts in a row without a minute of life in between, and the job has failed.
_MOST_STARTS = 5
_WELL_MS = 60_000
_MOST_ERROR = 1000
_PACKAGE_PARENT = str(Path(__file__).parents[2])
#: What the server alone needs to know.
_OWN_SETTINGS = ("CRAWL_API_", "CRAWL_JOBS_")


@dataclass(slots=True)
class Starter:
    """Call `run` in a task. *settings* are what a person gave to the server, for `scrapy run`."""

    client: RedisClient
    config: Config
    settings: Mapping[str, str]
    process: ProcessName = field(default_factory=ProcessName.of_this)
    #: Supervisors started here: they must be waited for, or they stay zombies.
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _starting: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _lock: IO[str] | None = None

    @property
    def records(self) -> JobRecords:
        return JobRecords(self.client)

    async def run(self) -> None:
        """Look for jobs for ever. Jobs run on when this is cancelled."""
        try:
            while True:
                try:
                    if self._leads():
                        await self.look()
                except (CrawlError, OSError) as exc:
                    logger.warning("cannot look for jobs: %s", exc)
                await asyncio.sleep(_LOOK_S)
        finally:
            for task in self._starting.values():
                task.cancel()
            await asyncio.gather(*self._starting.values(), return_exceptions=True)
            if self._lock is not None:
                self._lock.close()

    def _leads(self) -> bool:
        """Whether this server is the one that starts jobs on this machine."""
        if self._lock is not None:
            return True
        self.config.data.mkdir(parents=True, exist_ok=True)
        lock = (self.config.data / "serve.lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    async def look(self) -> None:
        """Start what waits, oldest first, as far as there are places."""
        self._reap()
        waiting: list[JobRecord] = []
        running = len(self._starting)
        names = [name for name in await self.records.open_names() if name not in self._starting]
        for name, record in zip(names, await self.records.find_all(names), strict=True):
            if record is None:
                # Deleted a moment ago.
                await self.records.close(name)
                continue
            is_here, is_waiting = await self._judge(record)
            running += is_here
            if is_waiting:
                waiting.append(record)
        for record in waiting[: max(0, self.config.jobs_at_once - running)]:
            task = asyncio.create_task(self._start(record), name=f"start-{record.id}")
            self._starting[record.id] = task
            task.add_done_callback(lambda _, name=record.id: self._starting.pop(name, None))  # type: ignore[misc]

    async def _judge(self, record: JobRecord) -> tuple[bool, bool]:
        """Return whether a job runs on this machine, and whether it waits to be started."""
        try:
            run = await self._run_of(record.id)
        except RunMismatch as exc:
            await self._fail(record, str(exc))
            return False, False
        if run is not None:
            supervisors = await read_supervisors(run, int(time.time() * 1000))
            if supervisors:
                if record.starts and time.time() * 1000 - record.started_ms > _WELL_MS:
                    await self.records.update(record.id, starts=0)
                processes = [ProcessName.read(beat["process"]) for beat in supervisors.values()]
                return any(process.is_here for process in processes), False
            state = await run.state()
            if not state or RunState(state).is_end:
                await self.records.close(record.id)
                return False, False
            if state == RunState.PAUSED:
                return False, False
        if record.id in self._children:
            # Not seen yet, or about to exit.
            return True, False
        return False, not record.held and not record.error

    async def _run_of(self, name: str) -> Run | None:
        return await Run.find(self.client, name) if await Run(self.client, name, 1).state() else None

    async def _start(self, record: JobRecord) -> None:
        """Claim a job and start its supervisor; returns when that is seen, or has exited."""
        key = keys.job_starter(record.id)
        if not await self._claim(key):
            return
        try:
            if await self.records.find(record.id) != record:
                return
            if record.starts >= _MOST_STARTS:
                ending = _last_line(self._output(record.id))
                await self._fail(record, f"Its processes have died {record.starts} times in a row. {ending}")
                return
            now_ms = int(time.time() * 1000)
            await self.records.update(record.id, starts=record.starts + 1, started_ms=now_ms)
            is_new = await self._run_of(record.id) is None
            seeds = await self.records.read_seeds(record.id)
            child = await asyncio.to_thread(self._launch, record, seeds, is_new=is_new)
            self._children[record.id] = child
            logger.info("job started", extra={"run": record.id, "supervisor": child.pid})
            await self._watch(record, child, key)
        except OSError as exc:
            await self._fail(record, f"It cannot be started: {exc}.")
        finally:
            await drop_name(self.client, key, self.process.instance)

    async def _claim(self, key: str) -> bool:
        holder = await hold_name(self.client, key, self.process, _LEASE_MS)
        if holder is not None and holder.process.is_dead():
            await drop_name(self.client, key, holder.process.instance)
            holder = await hold_name(self.client, key, self.process, _LEASE_MS)
        return holder is None

    async def _watch(self, record: JobRecord, child: subprocess.Popen[bytes], key: str) -> None:
        deadline_s = time.monotonic() + _APPEAR_S
        while time.monotonic() < deadline_s:
            code = child.poll()
            if code is not None:
                self._children.pop(record.id, None)
                await self._note_exit(record, code)
                return
            run = await self._run_of(record.id)
            if run is not None:
                seen = await read_supervisors(run, int(time.time() * 1000))
                if any(beat["process"]["pid"] == child.pid for beat in seen.values()):
                    return
            await hold_name(self.client, key, self.process, _LEASE_MS)
            await asyncio.sleep(_POLL_S)

    async def _note_exit(self, record: JobRecord, code: int) -> None:
        """Record that a supervisor has ended before it was seen."""
        run = await self._run_of(record.id)
        has_ended = run is not None and RunState(await run.state()).is_end
        # Another supervisor holds the run: the one that a killed server started.
        if code == 0 or has_ended or code == EXIT_SHARD_TAKEN:
            return
        if code in _FINAL or record.starts + 1 >= _MOST_STARTS:
            await self._fail(
                record, _last_line(self._output(record.id)) or f"It ended with exit code {code}."
            )

    async def _fail(self, record: JobRecord, error: str) -> None:
        logger.warning("job cannot be started: %s", error, extra={"run": record.id})
        await self.records.update(record.id, error=error[:_MOST_ERROR])
        await self.records.close(record.id)

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            if child.poll() is not None and name not in self._starting:
                del self._children[name]

    def _output(self, name: str) -> Path:
        return RunPaths(self.config.data, name).logs / "serve.out"

    def _launch(self, record: JobRecord, seeds: Sequence[str], *, is_new: bool) -> subprocess.Popen[bytes]:
        paths = RunPaths(self.config.data, record.id)
        paths.logs.mkdir(parents=True, exist_ok=True)
        words = ["--run", record.id, "--data", str(self.config.data)]
        if seeds:
            file = paths.directory / "seeds.txt"
            file.write_text("".join(f"{seed}\n" for seed in seeds), "utf-8")
            words.insert(0, str(file))
        words += run_options(record, self.settings, is_new=is_new)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_OWN_SETTINGS)
        }
        package = str(Path(__file__).parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [package, environment.get("PYTHONPATH", "")])
        )
        with self._output(record.id).open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "crawlproj", "run", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )


def run_options(record: JobRecord, settings: Mapping[str, str], *, is_new: bool) -> list[str]:
    """Return the options of `scrapy run` for a job. A run that exists keeps its own limits and rules."""
    asked = record.request
    words = []
    if shards := asked.get("shards"):
        words += ["--shards", str(shards)]
    if parsers := asked.get("parsers"):
        words += ["--parsers", parsers]
    for name in ("max_pages", "max_seconds", "max_bytes"):
        if is_new and asked.get(name):
            words += [f"--{name.replace('_', '-')}", str(asked[name])]
    # What was asked for last: the later of two counts.
    given = {name: value for name, value in settings.items() if not name.startswith(_OWN_SETTINGS)}
    for name, value in {**given, **asked.get("settings", {})}.items():
        if is_new or name not in RULES:
            words += ["-s", f"{name}={value}"]
    return words


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
