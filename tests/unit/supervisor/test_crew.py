"""The crew of a supervisor, with children that start nothing and a clock of the test's own."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from crawlproj.errors import EXIT_REDIS, EXIT_SHARD_TAKEN, EXIT_USAGE
from crawlproj.redisio.names import Holder, ProcessName
from crawlproj.runs import RunMap
from crawlproj.supervisor.crew import ChildDied, Crew
from crawlproj.supervisor.forkpool import ForkPool

SILENT_S, PATIENCE_S = 8.0, 30.0
#: A look at the crew is never further from the last than this: a longer gap excuses silence.
LOOK_S = SILENT_S / 4
#: A live process of this machine.
HERE = ProcessName.of_this()


@dataclass
class FakeProcess:
    """Lives until a test or the crew ends it."""

    name: str
    pid: int
    code: int | None = None
    cpu_s: float = 0.5
    signals: list[int] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, sig: int, /) -> None:
        self.signals.append(sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.code = -signal.SIGKILL


class FakeForkPool(ForkPool):
    """Starts processes that are only noted."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[FakeProcess] = []

    def start(self, name: str, arguments: Sequence[str], output: Path) -> FakeProcess:
        self.started.append(FakeProcess(name, pid=1000 + len(self.started)))
        return self.started[-1]


class Supervisor:
    """Looks at its crew as `scrapy run` does; the time and what Redis says are the test's."""

    def __init__(self, folder: Path) -> None:
        self.pool = FakeForkPool()
        self.messages: list[str] = []
        self.now_s = 1000.0
        self.shards, self.parsers = 0, 0
        #: Those given to us; None: all.
        self.numbers: set[int] | None = None
        #: Shard numbers held by processes that are not ours, and those of ours that do not renew theirs.
        self.others: dict[int, Holder] = {}
        self.silent: set[int] = set()
        self.crew = Crew(
            "web",
            lambda name: folder / f"{name}.log",
            {"DOWNLOAD_DELAY": "0"},
            silent_s=SILENT_S,
            patience_s=PATIENCE_S,
            notify=self.messages.append,
            forkpool=self.pool,
        )

    @property
    def running(self) -> list[str]:
        return sorted(process.name for process in self.pool.started if process.code is None)

    @property
    def starts(self) -> list[str]:
        return [process.name for process in self.pool.started]

    def process(self, name: str) -> FakeProcess:
        """The last process of that name."""
        return [process for process in self.pool.started if process.name == name][-1]

    def look(self, after_s: float = 0.0) -> None:
        """Look once, *after_s* later."""
        self.now_s += after_s
        ended = self.crew.take_exits()
        self.crew.maintain_shards(ended, self._read_map(), self._numbers(), self.now_s)
        self.crew.maintain_parsers(ended, self.parsers, self.now_s)
        self.crew.kill_overdue(self.now_s)

    def look_for(self, seconds: float) -> None:
        """Look again and again for so long, as often as it must be."""
        while seconds > 0:
            self.look(min(seconds, LOOK_S))
            seconds -= LOOK_S

    def _numbers(self) -> set[int]:
        return set(range(self.shards)) if self.numbers is None else self.numbers

    def _read_map(self) -> RunMap:
        alive = dict(self.others)
        for number, child in self.crew.shards.items():
            if child.pid is not None and number not in self.silent and number not in alive:
                alive[number] = holder(child.pid)
        return RunMap(self.shards, "running", alive)


def holder(pid: int, machine: str = HERE.machine) -> Holder:
    return Holder(replace(HERE, pid=pid, machine=machine), renewed_ms=0)


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(tmp_path)


# -- restarts --


@pytest.mark.parametrize("name", ["shard 0", "parser 0"])
def test_a_child_that_dies_is_restarted_after_a_pause_that_doubles(supervisor: Supervisor, name: str) -> None:
    supervisor.shards = supervisor.parsers = 1
    supervisor.look()

    pauses_s = []
    for _ in range(4):
        supervisor.process(name).code = -9
        supervisor.look()
        died_s, starts = supervisor.now_s, len(supervisor.starts)
        while len(supervisor.starts) == starts:
            supervisor.look(0.5)
        pauses_s.append(supervisor.now_s - died_s)

    assert pauses_s == [1, 2, 4, 8]
    assert f"{name} ended with signal 9; it is restarted in 8 s" in supervisor.messages


@pytest.mark.parametrize("name", ["shard 0", "parser 0"])
def test_the_fifth_death_in_a_row_ends_the_crawl_with_its_exit_code(
    supervisor: Supervisor, name: str
) -> None:
    supervisor.shards = supervisor.parsers = 1
    supervisor.look()
    for _ in range(4):
        supervisor.process(name).code = EXIT_REDIS
        supervisor.look()
        supervisor.look_for(10)
    supervisor.process(name).code = EXIT_REDIS

    with pytest.raises(ChildDied, match=f"{name} ended 5 times in a row") as caught:
        supervisor.look()

    assert caught.value.exit_code == EXIT_REDIS


def test_a_child_that_was_well_for_a_minute_is_restarted_after_the_first_pause_again(
    supervisor: Supervisor,
) -> None:
    supervisor.shards = 1
    for lived_s in (1, 1, 70):
        supervisor.look_for(10)
        supervisor.look_for(lived_s)
        supervisor.process("shard 0").code = 1
        supervisor.look()

    assert supervisor.messages[-1] == "shard 0 ended with exit code 1; it is restarted in 1 s"


def test_a_child_whose_next_try_would_end_the_same_is_not_restarted(supervisor: Supervisor) -> None:
    supervisor.parsers = 1
    supervisor.look()
    supervisor.process("parser 0").code = EXIT_USAGE

    with pytest.raises(ChildDied) as caught:
        supervisor.look()

    assert caught.value.exit_code == EXIT_USAGE


def test_what_a_child_said_last_is_the_reason(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.shards = 1
    supervisor.look()
    (tmp_path / "shard-0.log").write_text("[crawlproj] ERROR: no such setting\n")
    supervisor.process("shard 0").code = EXIT_USAGE

    with pytest.raises(ChildDied, match="no such setting"):
        supervisor.look()

    assert supervisor.messages == ["shard 0: no such setting"]


# -- silence --


def test_a_shard_that_stops_renewing_its_number_is_killed_and_restarted(supervisor: Supervisor) -> None:
    supervisor.shards = 2
    supervisor.look()
    supervisor.look(LOOK_S)

    supervisor.silent = {1}
    supervisor.look_for(SILENT_S)
    before = supervisor.running
    supervisor.look(0.1)
    killed = supervisor.process("shard 1").signals
    supervisor.silent = set()
    supervisor.look_for(4)

    assert before == ["shard 0", "shard 1"]
    assert killed == [signal.SIGKILL]
    assert supervisor.starts == ["shard 0", "shard 1", "shard 1"]
    assert supervisor.running == ["shard 0", "shard 1"]


def test_a_shard_that_starts_has_a_minute_to_claim_its_number(supervisor: Supervisor) -> None:
    supervisor.shards, supervisor.silent = 1, {0}
    supervisor.look()

    supervisor.look_for(60)
    before = supervisor.running
    supervisor.look(0.1)

    assert before == ["shard 0"]
    assert supervisor.process("shard 0").signals == [signal.SIGKILL]


def test_a_restarted_shard_has_a_minute_again(supervisor: Supervisor) -> None:
    supervisor.shards = 1
    supervisor.look_for(10)
    supervisor.process("shard 0").code = -9
    supervisor.silent = {0}
    supervisor.look()

    supervisor.look_for(4 * SILENT_S)

    assert supervisor.starts == ["shard 0", "shard 0"]
    assert supervisor.running == ["shard 0"]


def test_shards_are_not_killed_for_the_time_the_supervisor_slept(supervisor: Supervisor) -> None:
    supervisor.shards = 1
    supervisor.look()
    supervisor.look(LOOK_S)

    # As when Redis was unreachable: it renewed nothing, unseen.
    supervisor.silent = {0}
    supervisor.look(10 * SILENT_S)
    supervisor.look_for(SILENT_S)
    before = supervisor.running
    supervisor.look(0.1)

    assert before == ["shard 0"]
    assert supervisor.running == []


# -- as many as there should be --


def test_shards_that_another_machine_runs_are_not_started(supervisor: Supervisor) -> None:
    supervisor.shards, supervisor.others = 3, {1: holder(1, "elsewhere")}

    supervisor.look()

    assert supervisor.running == ["shard 0", "shard 2"]


@pytest.mark.parametrize("code", [0, -9])
def test_a_shard_that_is_no_longer_needed_is_let_go_and_not_restarted(
    supervisor: Supervisor, code: int
) -> None:
    supervisor.shards = 2
    supervisor.look()
    supervisor.look(LOOK_S)

    # It sees that by itself, and takes its time to finish; whether it renews its number is not checked.
    supervisor.shards, supervisor.silent = 1, {1}
    supervisor.look_for(10 * SILENT_S)
    signals = list(supervisor.process("shard 1").signals)
    supervisor.process("shard 1").code = code
    supervisor.look_for(60)

    assert signals == []
    assert supervisor.starts == ["shard 0", "shard 1"]
    assert list(supervisor.crew.shards) == [0]


@pytest.mark.parametrize("machine", ["elsewhere", HERE.machine], ids=["elsewhere", "here"])
@pytest.mark.parametrize("code", [EXIT_SHARD_TAKEN, -9])
def test_a_shard_whose_number_another_process_took_is_left_to_that(
    supervisor: Supervisor, code: int, machine: str
) -> None:
    supervisor.shards = 1
    supervisor.look()

    supervisor.process("shard 0").code = code
    if code != EXIT_SHARD_TAKEN:
        # It died, and the other was there before it was restarted.
        supervisor.look()
    supervisor.others = {0: holder(HERE.pid, machine)}
    supervisor.look_for(60)
    starts = list(supervisor.starts)
    supervisor.others = {}
    supervisor.look()

    assert starts == ["shard 0"]
    assert supervisor.running == ["shard 0"]


def test_a_number_held_by_a_dead_process_of_this_machine_is_free(supervisor: Supervisor) -> None:
    dead = replace(ProcessName.of_this(), started="before")
    run_map = RunMap(1, "running", {0: Holder(dead, renewed_ms=0)})

    supervisor.crew.maintain_shards({}, run_map, [0], supervisor.now_s)

    assert supervisor.running == ["shard 0"]


def test_a_number_held_by_the_same_pid_of_another_machine_is_not_our_child_s(supervisor: Supervisor) -> None:
    supervisor.shards = 1
    supervisor.look()
    child = supervisor.process("shard 0")

    # Its hostname is ours, too.
    supervisor.others = {0: holder(child.pid, machine="another boot")}
    supervisor.look_for(100)

    assert child.signals == [signal.SIGKILL]


def test_parsers_get_the_lowest_number_that_is_free(supervisor: Supervisor) -> None:
    supervisor.parsers = 3
    supervisor.look()
    supervisor.parsers = 1
    supervisor.look(LOOK_S)

    # Two are asked to stop, and one has: the other still writes to the log of its number.
    supervisor.process("parser 1").code = 0
    supervisor.look(LOOK_S)
    supervisor.parsers = 3
    supervisor.look(LOOK_S)

    assert supervisor.starts[3:] == ["parser 1", "parser 3"]
    assert supervisor.running == ["parser 0", "parser 1", "parser 2", "parser 3"]


# -- leaving --


def test_a_parser_no_longer_needed_is_asked_to_stop_and_killed_only_when_overdue(
    supervisor: Supervisor,
) -> None:
    supervisor.parsers = 2
    supervisor.look()

    supervisor.parsers = 1
    supervisor.look()
    supervisor.look_for(PATIENCE_S)
    asked = list(supervisor.process("parser 1").signals)
    supervisor.look(0.1)
    supervisor.look_for(60)

    assert asked == [signal.SIGTERM]
    assert supervisor.process("parser 1").signals == [signal.SIGTERM, signal.SIGKILL]
    assert supervisor.process("parser 0").signals == []
    assert supervisor.starts == ["parser 0", "parser 1"]
    assert supervisor.crew.leaving == []


def test_all_that_are_asked_to_stop_have_the_same_patience(supervisor: Supervisor) -> None:
    supervisor.shards = supervisor.parsers = 1
    supervisor.look()
    crew, now_s = supervisor.crew, supervisor.now_s

    crew.stop_shards(now_s)
    crew.stop_parsers(now_s)
    # Asking again does not extend the deadline.
    crew.stop_shards(now_s + 20)
    crew.kill_overdue(now_s + PATIENCE_S)
    before = supervisor.running
    crew.kill_overdue(now_s + PATIENCE_S + 0.1)

    assert before == ["parser 0", "shard 0"]
    assert supervisor.running == []
    assert {tuple(process.signals) for process in supervisor.pool.started} == {
        (signal.SIGTERM, signal.SIGKILL)
    }


def test_parsers_of_a_run_that_is_over_finish_and_only_the_dead_are_restarted(
    supervisor: Supervisor,
) -> None:
    supervisor.parsers = 2
    supervisor.look()
    supervisor.process("parser 0").code = 0
    supervisor.process("parser 1").code = -9

    crew = supervisor.crew
    crew.drain_parsers(crew.take_exits(), supervisor.now_s)
    crew.drain_parsers(crew.take_exits(), supervisor.now_s + 0.9)
    paused = supervisor.running
    crew.drain_parsers(crew.take_exits(), supervisor.now_s + 1)
    left = [child.name for child in crew.parsers]
    restarted = supervisor.starts[2:]
    supervisor.process("parser 1").code = 0
    crew.drain_parsers(crew.take_exits(), supervisor.now_s + 2)

    assert paused == []
    assert left == restarted == ["parser 1"]
    assert crew.parsers == []
    assert not crew.has_any


def test_every_child_gets_its_run_and_the_settings(tmp_path: Path) -> None:
    arguments: dict[str, Sequence[str]] = {}

    class Noting(FakeForkPool):
        def start(self, name: str, given: Sequence[str], output: Path) -> FakeProcess:
            arguments[name] = given
            return super().start(name, given, output)

    supervisor = Supervisor(tmp_path)
    supervisor.crew._forkpool = Noting()
    supervisor.shards = supervisor.parsers = 1
    supervisor.look()

    assert arguments["shard 0"][:5] == ["crawl", "web", "-ashard=0", "-arun=web", "--set=DOWNLOAD_DELAY=0"]
    assert arguments["parser 0"][:4] == ["parser", "--run", "web", "--set=DOWNLOAD_DELAY=0"]


def test_the_cpu_time_of_processes_that_have_ended_is_kept_by_role(supervisor: Supervisor) -> None:
    supervisor.shards, supervisor.parsers = 2, 1
    supervisor.look()
    for name in ("shard 0", "shard 1", "parser 0"):
        supervisor.process(name).code = 1
    supervisor.look()
    supervisor.look_for(2)

    supervisor.process("shard 0").code = 0
    supervisor.look()

    assert supervisor.crew.cpu_s == {"shard": 1.5, "parser": 0.5}
