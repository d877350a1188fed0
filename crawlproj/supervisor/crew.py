"""The shards and parsers of one supervisor: as many as there should be, restarted when they die."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from crawlproj.errors import EXIT_SHARD_TAKEN, CrawlError
from crawlproj.runs import RunMap
from crawlproj.supervisor.children import Child, describe_exit
from crawlproj.supervisor.forkpool import ForkPool
from crawlproj.supervisor.plan import FINAL

#: How long a shard may take to claim its number before it counts as silent.
_START_S = 60.0
#: How often segments are merged while the crawl runs.
_MERGE_EVERY_S = 600.0


class ChildDied(CrawlError):
    """A child is not worth restarting; its exit code becomes ours."""

    def __init__(self, child: Child, code: int) -> None:
        self.exit_code = code if code > 0 else 1
        times = f" {child.restarts.deaths} times in a row, the last time" if child.restarts.deaths > 1 else ""
        self.reason = (
            f"{child.name} ended{times} with {describe_exit(code)}: {child.last_error or 'no message'}"
        )
        # The same command would end the same way.
        resume = "Correct that, then run" if code in FINAL else "Run"
        super().__init__(f"{self.reason}\nIts log: {child.log}. {resume} the same command to resume.")


class Crew:
    """Children by role. No method waits: call them at every look at the run, with the time of one clock.

    *silent_s*: how long a shard may fail to renew its number; *patience_s*: how long a child may take to stop
    when asked. *settings* are passed to every child, *spider_words*, a spider and its arguments, to shards;
    *log_of* returns the log file of each. *merges*: there is a process now and then that merges segments.
    """

    def __init__(
        self,
        run: str,
        log_of: Callable[[str], Path],
        settings: Mapping[str, str],
        *,
        silent_s: float,
        patience_s: float,
        notify: Callable[[str], None],
        forkpool: ForkPool | None = None,
        spider_words: Sequence[str] = ("web",),
        merges: bool = False,
    ) -> None:
        self.shards: dict[int, Child] = {}
        self.parsers: list[Child] = []
        #: Parsers that are no longer needed and were asked to stop.
        self.leaving: list[Child] = []
        #: CPU seconds of the processes that have ended, by kind.
        self.cpu_s = {"shard": 0.0, "parser": 0.0}
        self._merger: Child | None = None
        self._merges = merges
        self._has_merged_rest = False
        self._run = run
        self._spider_words = spider_words
        self._log_of = log_of
        self._settings = [f"--set={name}={value}" for name, value in settings.items()]
        self._silent_s = silent_s
        self._patience_s = patience_s
        self._notify = notify
        self._forkpool = forkpool or ForkPool()
        self._last_look_s = 0.0

    @property
    def all(self) -> list[Child]:
        return [*self.shards.values(), *self.parsers, *self.leaving, *filter(None, [self._merger])]

    @property
    def has_shards(self) -> bool:
        return any(child.is_running for child in self.shards.values())

    @property
    def is_merging(self) -> bool:
        return self._merger is not None and self._merger.is_running

    @property
    def has_any(self) -> bool:
        return any(child.is_running for child in self.all)

    def take_exits(self) -> dict[str, int]:
        """Return the exit codes of the children that ended since the last call, by name."""
        ended = {}
        for child in self.all:
            if (code := child.take_exit()) is not None:
                ended[child.name] = code
                kind = child.name.partition(" ")[0]
                self.cpu_s[kind] = self.cpu_s.get(kind, 0.0) + child.cpu_s
        # They have written their last lines by now.
        self._report_errors()
        self.leaving = [child for child in self.leaving if child.is_running]
        return ended

    def elsewhere(self, run_map: RunMap) -> set[int]:
        """Return the numbers that processes of others hold."""
        return {number for number in run_map.alive if not self._is_ours(number, run_map)}

    def maintain_shards(
        self, ended: Mapping[str, int], run_map: RunMap, numbers: Collection[int], now_s: float
    ) -> None:
        """Have the shards of *numbers*, which are ours. *ended* was taken before *run_map* was read.

        Raises ChildDied for one that is not worth restarting.
        """
        elsewhere = self.elsewhere(run_map)
        if now_s - self._last_look_s > self._silent_s / 4:
            # Redis was unreachable, or we were suspended: the same holds for them, so none was silent.
            for child in self.shards.values():
                child.seen_s = now_s
        self._last_look_s = now_s
        for number, child in list(self.shards.items()):
            code = ended.get(child.name)
            is_retired = number >= run_map.shards and not child.is_running
            is_taken = number in elsewhere and code in (None, EXIT_SHARD_TAKEN) and not child.is_running
            is_moved = number not in numbers and not child.is_running
            if is_retired or is_taken or is_moved:
                del self.shards[number]
            elif code is not None:
                self._schedule_restart(child, code, now_s)
            elif child.is_running and number < run_map.shards:
                if number not in numbers:
                    # Another member gets it when this one has left.
                    child.ask_to_stop(now_s + self._patience_s)
                self._kill_if_silent(child, number in run_map.alive and number not in elsewhere, now_s)
        for number in sorted(set(numbers) - self.shards.keys() - elsewhere):
            self.shards[number] = self._new_shard(number)
        self._start_due(self.shards.values(), now_s)

    def maintain_parsers(self, ended: Mapping[str, int], wanted: int, now_s: float) -> None:
        """Have *wanted* parsers. Raises ChildDied for one that is not worth restarting."""
        for child in self.parsers:
            if child.name in ended:
                self._schedule_restart(child, ended[child.name], now_s)
        while len(self.parsers) < wanted:
            self.parsers.append(self._new_parser())
        while len(self.parsers) > wanted:
            child = self.parsers.pop()
            child.ask_to_stop(now_s + self._patience_s)
            self.leaving.append(child)
        self._start_due(self.parsers, now_s)

    def maintain_merger(self, now_s: float) -> None:
        """Merge small segments now and then. A failure is in its log, and the next one tries again."""
        if not self._merges or self.is_merging:
            return
        if self._merger is None:
            # Not at once: there is nothing yet.
            self._merger = Child(
                "merger", ["compact", "--run", self._run, *self._settings], self._log_of("merger")
            )
            self._merger.started_s = now_s
        elif now_s - self._merger.started_s >= _MERGE_EVERY_S:
            self._merger.start(now_s)

    def drain_parsers(self, ended: Mapping[str, int], now_s: float) -> None:
        """Let parsers finish by themselves, now that the run is over; restart those that die before that."""
        for child in list(self.parsers):
            if not child.is_running and child.exit_code == 0:
                self.parsers.remove(child)
            elif child.name in ended:
                self._schedule_restart(child, ended[child.name], now_s)
        self._start_due(self.parsers, now_s)
        if self._merger and not (self.parsers or self.is_merging or self._has_merged_rest):
            self._has_merged_rest = True
            self._notify("merging small segments")
            self._merger.start(now_s)

    def stop_shards(self, now_s: float) -> None:
        for child in self.shards.values():
            child.ask_to_stop(now_s + self._patience_s)

    def stop_parsers(self, now_s: float) -> None:
        for child in (*self.parsers, *filter(None, [self._merger])):
            child.ask_to_stop(now_s + self._patience_s)

    def kill_overdue(self, now_s: float) -> None:
        """Kill the children that were asked to stop and did not in time."""
        for child in self.all:
            if child.is_running and child.stop_by_s is not None and now_s > child.stop_by_s:
                self._notify(f"{child.name} did not stop in {self._patience_s:g} s and is killed")
                child.kill()

    def kill(self) -> None:
        for child in self.all:
            child.kill()

    def _is_ours(self, number: int, run_map: RunMap) -> bool:
        """Whether a shard number is held by our child, or by a process that is known to be dead."""
        holder = run_map.alive[number].process
        child = self.shards.get(number)
        if child is not None and child.pid == holder.pid and holder.is_here:
            return True
        return holder.is_dead()

    def _report_errors(self) -> None:
        for child in self.all:
            for error in child.new_errors():
                self._notify(f"{child.name}: {error}")

    def _kill_if_silent(self, child: Child, is_well: bool, now_s: float) -> None:
        # A shard that has not claimed its number yet holds nothing: a busy machine may take its time.
        silent_s = self._silent_s if child.was_healthy else max(self._silent_s, _START_S)
        if is_well:
            child.seen_s, child.was_healthy = now_s, True
        elif now_s - child.seen_s > silent_s:
            self._notify(f"{child.name} (process {child.pid}) was silent for {silent_s:g} s and is killed")
            child.kill()

    def _schedule_restart(self, child: Child, code: int, now_s: float) -> None:
        if not child.restarts.after_death(code, now_s - child.started_s, now_s):
            raise ChildDied(child, code)
        pause_s = child.restarts.next_at_s - now_s
        self._notify(f"{child.name} ended with {describe_exit(code)}; it is restarted in {pause_s:g} s")

    def _start_due(self, children: Iterable[Child], now_s: float) -> None:
        for child in children:
            # Not one that ended since `take_exits`: its death would not be counted.
            if child.pid is None and now_s >= child.restarts.next_at_s:
                child.start(now_s)

    def _new_shard(self, number: int) -> Child:
        arguments = ["crawl", *self._spider_words, f"-ashard={number}", f"-arun={self._run}", *self._settings]
        return Child(f"shard {number}", arguments, self._log_of(f"shard-{number}"), self._forkpool)

    def _new_parser(self) -> Child:
        taken = {child.name for child in (*self.parsers, *self.leaving)}
        number = next(n for n in range(len(taken) + 1) if f"parser {n}" not in taken)
        arguments = ["parser", "--run", self._run, *self._settings]
        return Child(f"parser {number}", arguments, self._log_of(f"parser-{number}"), self._forkpool)
