"""The shards and parsers of one supervisor: as many as there should be, the dead started again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from crawlproj.errors import EXIT_SHARD_TAKEN, CrawlError
from crawlproj.runs import RunMap
from crawlproj.supervisor.children import Child, manner_of
from crawlproj.supervisor.nursery import Nursery
from crawlproj.supervisor.plan import numbers_to_start

#: How long a shard may take to start before it counts as silent.
_START_S = 60.0


class ChildDied(CrawlError):
    """A process of the crawl cannot go on; its exit code is ours."""

    def __init__(self, child: Child, code: int) -> None:
        self.exit_code = code if code > 0 else 1
        times = f" {child.deaths.count} times in a row, the last time" if child.deaths.count > 1 else ""
        self.reason = f"{child.name} ended{times} with {manner_of(code)}: {child.last_words or 'no word'}"
        super().__init__(f"{self.reason}\nIts log: {child.log}. The same command goes on from here.")


class Crew:
    """Children by their role. Nothing here waits: call the steps again and again.

    *silent_s*: how long a shard may fail to renew its number; *patience_s*: how long a child that was asked
    to stop may take. *settings* are handed on to every child; *log_of* says where each logs; *nursery* starts
    them.
    """

    def __init__(
        self,
        run: str,
        log_of: Callable[[str], Path],
        settings: Mapping[str, str],
        *,
        silent_s: float,
        patience_s: float,
        say: Callable[[str], None],
        nursery: Nursery | None = None,
    ) -> None:
        self.shards: dict[int, Child] = {}
        self.parsers: list[Child] = []
        #: Parsers that are not needed any more, on their way out.
        self.leaving: list[Child] = []
        self._run = run
        self._log_of = log_of
        self._settings = [f"--set={name}={value}" for name, value in settings.items()]
        self._silent_s = silent_s
        self._patience_s = patience_s
        self._say = say
        self._nursery = nursery or Nursery()
        self._host = socket.gethostname()
        self._tended_s = 0.0

    @property
    def all(self) -> list[Child]:
        return [*self.shards.values(), *self.parsers, *self.leaving]

    @property
    def has_shards(self) -> bool:
        return any(child.is_running for child in self.shards.values())

    @property
    def has_any(self) -> bool:
        return any(child.is_running for child in self.all)

    def take_exits(self) -> dict[str, int]:
        """Return who has ended since this was last asked, by name, with their exit codes."""
        ended = {child.name: code for child in self.all if (code := child.take_exit()) is not None}
        # Their last words are all there now.
        self.tell_errors()
        self.leaving = [child for child in self.leaving if child.is_running]
        return ended

    def tell_errors(self) -> None:
        for child in self.all:
            for error in child.new_errors():
                self._say(f"{child.name}: {error}")

    def tend_shards(self, ended: Mapping[str, int], run_map: RunMap, ready_for: int, now_s: float) -> None:
        """Have the shards that the run should have. *ended* was taken before *run_map* was read.

        Raises ChildDied when one of them cannot go on.
        """
        elsewhere = {n for n in run_map.alive if not self._is_ours(n, run_map)}
        if now_s - self._tended_s > self._silent_s / 4:
            # Redis was away, or we slept: so may they have been.
            for child in self.shards.values():
                child.seen_s = now_s
        self._tended_s = now_s
        for number, child in list(self.shards.items()):
            code = ended.get(child.name)
            is_retired = number >= run_map.shards and not child.is_running
            is_taken = number in elsewhere and code in (None, EXIT_SHARD_TAKEN) and not child.is_running
            if is_retired or is_taken:
                del self.shards[number]
            elif code is not None:
                self._mourn(child, code, now_s)
            elif child.is_running and number < run_map.shards:
                self._look_after(child, number in run_map.alive and number not in elsewhere, now_s)
        for number in numbers_to_start(run_map.shards, ready_for, self.shards, elsewhere):
            self.shards[number] = self._shard(number)
        self._start_due(self.shards.values(), now_s)

    def tend_parsers(self, ended: Mapping[str, int], wanted: int, now_s: float) -> None:
        """Have *wanted* parsers. Raises ChildDied when one of them cannot go on."""
        for child in self.parsers:
            if child.name in ended:
                self._mourn(child, ended[child.name], now_s)
        while len(self.parsers) < wanted:
            self.parsers.append(self._parser())
        while len(self.parsers) > wanted:
            child = self.parsers.pop()
            child.ask_to_stop(now_s + self._patience_s)
            self.leaving.append(child)
        self._start_due(self.parsers, now_s)

    def drain_parsers(self, ended: Mapping[str, int], now_s: float) -> None:
        """Let parsers end by themselves, now that the run is over; who died before that starts again."""
        for child in list(self.parsers):
            if not child.is_running and child.exit_code == 0:
                self.parsers.remove(child)
            elif child.name in ended:
                self._mourn(child, ended[child.name], now_s)
        self._start_due(self.parsers, now_s)

    def stop_shards(self, now_s: float) -> None:
        for child in self.shards.values():
            child.ask_to_stop(now_s + self._patience_s)

    def stop_parsers(self, now_s: float) -> None:
        for child in self.parsers:
            child.ask_to_stop(now_s + self._patience_s)

    def kill_late(self, now_s: float) -> None:
        """End those who were asked to stop and did not in time."""
        for child in self.all:
            if child.is_running and child.gone_by_s is not None and now_s > child.gone_by_s:
                self._say(f"{child.name} did not stop in {self._patience_s:g} s and is killed")
                child.kill()

    def kill(self) -> None:
        for child in self.all:
            child.kill()

    def _is_ours(self, number: int, run_map: RunMap) -> bool:
        """Whether a number is held by our child, or by nobody who still lives."""
        holder = run_map.alive[number].process
        child = self.shards.get(number)
        if child is not None and child.pid == holder.pid and holder.host == self._host:
            return True
        return holder.is_dead()

    def _look_after(self, child: Child, is_well: bool, now_s: float) -> None:
        # One that is not there yet may have a busy machine, and loses nothing.
        silent_s = self._silent_s if child.has_shown else max(self._silent_s, _START_S)
        if is_well:
            child.seen_s, child.has_shown = now_s, True
        elif now_s - child.seen_s > silent_s:
            self._say(f"{child.name} (process {child.pid}) was silent for {silent_s:g} s and is killed")
            child.kill()

    def _mourn(self, child: Child, code: int, now_s: float) -> None:
        if not child.deaths.died(code, now_s - child.started_s, now_s):
            raise ChildDied(child, code)
        pause_s = child.deaths.again_at_s - now_s
        self._say(f"{child.name} ended with {manner_of(code)}; it is started again in {pause_s:g} s")

    def _start_due(self, children: Iterable[Child], now_s: float) -> None:
        for child in children:
            if not child.is_running and now_s >= child.deaths.again_at_s:
                child.start(now_s)

    def _shard(self, number: int) -> Child:
        arguments = ["crawl", "web", f"-ashard={number}", f"-arun={self._run}", *self._settings]
        return Child(f"shard {number}", arguments, self._log_of(f"shard-{number}"), self._nursery)

    def _parser(self) -> Child:
        taken = {child.name for child in (*self.parsers, *self.leaving)}
        number = next(n for n in range(len(taken) + 1) if f"parser {n}" not in taken)
        arguments = ["parser", "--run", self._run, *self._settings]
        return Child(f"parser {number}", arguments, self._log_of(f"parser-{number}"), self._nursery)
