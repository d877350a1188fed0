"""Starts the jobs that wait, and starts those again whose processes were killed.

On a machine one server does it, the one that holds the lock in the data directory; between machines a lease
in Redis decides. A supervisor is a process of its own: it outlives the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crawlproj.api.lead import Lead
from crawlproj.api.places import Places, own_settings, parsers_wanted
from crawlproj.config import Config
from crawlproj.config.rules import RULES
from crawlproj.errors import EXIT_SHARD_TAKEN, CrawlError, RunMismatch
from crawlproj.model.run import RunPaths, RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecord, JobRecords
from crawlproj.runs.membership import read_members
from crawlproj.runs.processes import live_processes, parser_silence_s
from crawlproj.supervisor import child
from crawlproj.supervisor.launch import OF_SERVER
from crawlproj.supervisor.plan import FINAL

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
_POLL_S = 0.1
#: A lease in Redis lasts this long after the death of a server on another machine.
_LEASE_MS = 15_000
#: How long a supervisor may take until it is seen: it may wait for leftovers of a killed one.
_APPEAR_S = 90.0
#: So many starts in a row without a minute of life in between, and the job has failed.
_MOST_STARTS = 5
_WELL_MS = 60_000
_MOST_ERROR = 1000
#: Before the message of a command.
_PROGRAM = re.compile(r"^crawlproj \w+: ")


@dataclass(slots=True)
class Starter:
    """Call `run` in a task. *settings* are what a person gave to the server, for `scrapy run`."""

    client: RedisClient
    config: Config
    settings: Mapping[str, str]
    places: Places
    lead: Lead
    process: ProcessName = field(default_factory=ProcessName.of_this)
    #: Supervisors started here: they must be waited for, or they stay zombies.
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _starting: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    #: Why servers of scrapyd did not take what was missing of a job, if they did not the last time.
    _refusals: dict[str, str] = field(default_factory=dict)

    @property
    def records(self) -> JobRecords:
        return JobRecords(self.client)

    async def run(self) -> None:
        """Look for jobs for ever. Jobs run on when this is cancelled."""
        try:
            while True:
                try:
                    if self.lead.take():
                        await self.look()
                except (CrawlError, OSError) as exc:
                    logger.warning("cannot look for jobs: %s", exc)
                await asyncio.sleep(_LOOK_S)
        finally:
            for task in self._starting.values():
                task.cancel()
            await asyncio.gather(*self._starting.values(), return_exceptions=True)
            self.lead.close()

    async def look(self) -> None:
        """Start what waits, oldest first, as far as there are places."""
        self._reap()
        waiting: list[JobRecord] = []
        running = len(self._starting)
        names = [name for name in await self.records.open_names() if name not in self._starting]
        # After the names: what was started meanwhile is not judged by old answers.
        await self.places.refresh()
        for name, record in zip(names, await self.records.find_all(names), strict=True):
            if record is None:
                # Deleted a moment ago.
                await self.records.close(name)
                continue
            is_here, is_waiting = await self._judge(record)
            running += is_here
            if is_waiting:
                waiting.append(record)
        # A server that cannot be used now may run them already.
        free = 0 if self.places.errors else self.config.jobs_at_once - running
        for record in waiting[: max(0, free)]:
            self._begin(record, self._start(record))

    def _begin(self, record: JobRecord, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"start-{record.id}")
        self._starting[record.id] = task
        task.add_done_callback(partial(self._ended, record))

    def _ended(self, record: JobRecord, task: asyncio.Task[None]) -> None:
        self._starting.pop(record.id, None)
        if not task.cancelled() and (exc := task.exception()):
            bug = None if isinstance(exc, CrawlError) else exc
            logger.warning("cannot start a job: %s", exc, exc_info=bug, extra={"run": record.id})

    async def _judge(self, record: JobRecord) -> tuple[bool, bool]:
        """Return whether a job runs on this machine, and whether it waits to be started."""
        try:
            run = await Run.look_up(self.client, record.id)
        except RunMismatch as exc:
            await self._fail(record, str(exc))
            return False, False
        if run is not None:
            if record.held and await run.state() == RunState.RUNNING:
                # Somebody held it while it was being started.
                await run.change(RunState(record.held), "asked")
                await self.records.update(record.id, held="")
            members = await read_members(run)
            elsewhere = not members and await self._runs_elsewhere(run)
            if members or elsewhere:
                if record.starts and await server_ms(self.client) - record.started_ms > _WELL_MS:
                    await self.records.update(record.id, starts=0)
                if elsewhere and await self.places.missing(run, record):
                    self._begin(record, self._complete(run, record))
                return elsewhere or any(member.process.is_here for member in members.values()), False
            if await run.is_over():
                await self.records.close(record.id)
                return False, False
            if await run.state() == RunState.PAUSED:
                return False, False
        if record.id in self._children:
            # Not seen yet, or about to exit.
            return True, False
        return False, not record.held and not record.error

    async def _runs_elsewhere(self, run: Run) -> bool:
        """Whether jobs of scrapyd servers work on *run*; a server forgets those of its time before."""
        if not self.places:
            return False
        alive = await live_processes(run, parser_silence_s(self.config))
        return self.places.has(run.name) or bool(alive)

    async def _complete(self, run: Run, record: JobRecord) -> None:
        """Schedule what is missing of a job on scrapyd servers."""
        key = keys.job_starter(record.id)
        if not await self._claim(key):
            return
        try:
            if record.starts >= _MOST_STARTS:
                ends = "Its processes end again and again; scrapyd has their logs."
                await self._fail(record, self._refusals.pop(record.id, ends))
                return
            now_ms = await server_ms(self.client)
            await self.records.update(record.id, starts=record.starts + 1, started_ms=now_ms)
            self._refusals.pop(record.id, None)
            if why := await self.places.complete(run, record):
                self._refusals[record.id] = why
        finally:
            await drop_name(self.client, key, self.process.instance)

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
            now_ms = await server_ms(self.client)
            await self.records.update(record.id, starts=record.starts + 1, started_ms=now_ms)
            is_new = await Run.look_up(self.client, record.id) is None
            seeds = await self.records.read_seeds(record.id)
            process = await asyncio.to_thread(self._launch, record, seeds, is_new=is_new)
            self._children[record.id] = process
            logger.info("job started", extra={"run": record.id, "supervisor": process.pid})
            await self._watch(record, process, key)
        except OSError as exc:
            await self._fail(record, f"It cannot be started: {exc}.")
        finally:
            self.places.look_again()
            await drop_name(self.client, key, self.process.instance)

    async def _claim(self, key: str) -> bool:
        holder = await hold_name(self.client, key, self.process, _LEASE_MS)
        if holder is not None and holder.process.is_dead():
            await drop_name(self.client, key, holder.process.instance)
            holder = await hold_name(self.client, key, self.process, _LEASE_MS)
        return holder is None

    async def _watch(self, record: JobRecord, process: subprocess.Popen[bytes], key: str) -> None:
        deadline_s = time.monotonic() + _APPEAR_S
        while time.monotonic() < deadline_s:
            code = process.poll()
            if code is not None:
                self._children.pop(record.id, None)
                await self._note_exit(record, code)
                return
            run = await Run.look_up(self.client, record.id)
            if run is not None:
                seen = await read_members(run)
                if any(member.process.pid == process.pid for member in seen.values()):
                    return
            await hold_name(self.client, key, self.process, _LEASE_MS)
            await asyncio.sleep(_POLL_S)

    async def _note_exit(self, record: JobRecord, code: int) -> None:
        """Record that a supervisor has ended before it was seen."""
        run = await Run.look_up(self.client, record.id)
        has_ended = run is not None and await run.is_over()
        # Another supervisor holds the run: the one that a killed server started.
        if code == 0 or has_ended or code == EXIT_SHARD_TAKEN:
            return
        if code in FINAL or record.starts + 1 >= _MOST_STARTS:
            await self._fail(
                record, _last_line(self._output(record.id)) or f"It ended with exit code {code}."
            )

    async def _fail(self, record: JobRecord, error: str) -> None:
        logger.warning("job cannot be started: %s", error, extra={"run": record.id})
        await self.records.update(record.id, error=error[:_MOST_ERROR])
        await self.records.close(record.id)

    def _reap(self) -> None:
        for name, process in list(self._children.items()):
            if process.poll() is not None and name not in self._starting:
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
        words += run_options(record, self.settings, is_new=is_new, elsewhere=bool(self.places))
        if self.places:
            words.append(f"--set=CRAWL_JOBS_ON={','.join(self.config.jobs_on)}")
        # A job may be started several times, and is one crawl.
        words.append("--set=SCHEDULER_FLUSH_ON_START=0")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_SERVER)}
        command, hidden = child.command("crawlproj", ["launch" if self.places else "run", *words])
        with self._output(record.id).open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment | hidden,
                start_new_session=True,
            )


def run_options(
    record: JobRecord, settings: Mapping[str, str], *, is_new: bool, elsewhere: bool
) -> list[str]:
    """Return the options of `scrapy run` for a job, or of `scrapy launch` if it is to run *elsewhere*.

    A run that exists keeps its own limits and rules.
    """
    asked = record.request
    words = []
    if shards := asked.get("shards"):
        words += ["--shards", str(shards)]
    if elsewhere:
        words += ["--parsers", str(parsers_wanted(record))]
    elif parsers := asked.get("parsers"):
        words += ["--parsers", parsers]
    for name in ("max_pages", "max_seconds", "max_bytes"):
        if is_new and asked.get(name):
            words += [f"--{name.replace('_', '-')}", str(asked[name])]
    # What was asked for last: the later of two counts.
    given = {name: value for name, value in settings.items() if not name.startswith(OF_SERVER)}
    own = own_settings(record) if elsewhere else {}
    for name, value in {**given, **asked.get("settings", {}), **own}.items():
        if is_new or name not in RULES:
            words.append(f"--set={name}={value}")
    return words


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    # A person who looks at a job has typed no command.
    return _PROGRAM.sub("", lines[-1]) if lines else ""
