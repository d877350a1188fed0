"""Several machines on one run: links are cut, machines die and return, clocks and hostnames deceive."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from crawlproj.model.partition import partition_of
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.conftest import Crew, wait_until
from tests.machines.lab import DELAY_S, Lab, Machine, laboratory

pytestmark = pytest.mark.e2e

WORLD = WorldSpec(seed=3, domains=12, pages_per_domain=25, size_spread=0.0, throttle_share=0.0)
#: At work still when a busy machine has done all that is wanted.
LONGER = replace(WORLD, pages_per_domain=60)
HOUR_MS = 3_600_000
#: Of the second crawl.
LEASE_S = 8
#: What is in flight, or fetched and not settled, when a machine with two shards dies or is cut off.
TWICE = 18


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    # Not pytest's own folder: its names are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        yield from laboratory(Path(folder), ["box", "box", "box"])


def shards_alive(lab: Lab, *counts: int) -> None:
    """Wait until each machine has so many shards at work."""
    what = f"the machines have {counts} shards"
    wait_until(lambda: [len(lab.shards_on(machine)) for machine in lab.machines] == [*counts], what)


def fetch_more(crew: Crew, count: int) -> None:
    crew.wait_for_fetched(crew.status()["fetched"] + count)


def first_after(crew: Crew, number: int, died_ms: float) -> float:
    """Return how long after *died_ms* a domain of shard *number* of three was requested, in s; 0: not yet."""
    orphans = (r for r in crew.simweb.referee().requests if partition_of(r.domain, 64) % 3 == number)
    return min((r.start_ms - died_ms for r in orphans if r.start_ms > died_ms), default=0.0) / 1000


def wrong_clock(lab: Lab, machine: Machine, ahead_ms: int) -> dict[str, str]:
    """Return an environment in which processes of *machine* have a wall clock that is ahead."""
    shim, control = lab.directory / "shim.so", machine.disk / "clock"
    source = Path(__file__).parents[1] / "chaos/shim.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl", "-lpthread"], check=True
    )
    control.write_bytes(struct.pack("qqq", ahead_ms, 0, 0))
    return {"LD_PRELOAD": str(shim), "CHAOS_CONTROL": str(control)}


@dataclass
class Story:
    """What was seen of a crawl."""

    crew: Crew
    codes: list[int] = field(default_factory=list)
    shards: dict[str, int] = field(default_factory=dict)
    silent_s: list[float] = field(default_factory=list)
    log_of_return: str = ""
    takeover_s: float = 0.0


@pytest.fixture(scope="module")
def storm(lab: Lab) -> Iterator[Story]:
    """Three machines named alike, clocks an hour apart; links are cut, the first dies and returns."""
    first, second, third = lab.machines
    second.environment |= wrong_clock(lab, second, -HOUR_MS)
    third.environment |= wrong_clock(lab, third, HOUR_MS)
    # The clock that is ahead would end it.
    command = ("--run", "web", "--shards", "2", "--parsers", "1", "--max-seconds", "1800")
    with lab.web(WORLD) as crew:
        story = Story(crew)
        first.run(*command)
        crew.wait_for_fetched(10)
        crew.hold_open(held=True)
        joined = [second.run(*command), third.run(*command)]
        shards_alive(lab, 2, 2, 2)
        story.shards["joined"] = crew.status()["shards"]
        story.silent_s = lab.silent_s()

        # Shorter than the lease of 3 s.
        second.link(up=False)
        time.sleep(1)
        second.link(up=True)
        fetch_more(crew, 5)

        # Longer: one without any link, one without Redis.
        second.link(up=False)
        third.reach_redis(can=False)
        wait_until(lambda: not lab.shards_on(second) | lab.shards_on(third), "both have lost their shards")
        second.link(up=True)
        third.reach_redis(can=True)
        shards_alive(lab, 2, 2, 2)

        first.crash()
        before = len(first.log)
        again = first.run(*command)
        shards_alive(lab, 2, 2, 2)
        story.shards["returned"] = crew.status()["shards"]
        story.log_of_return = first.log[before:]
        crew.hold_open(held=False)
        story.codes = [process.wait() for process in (*joined, again)]
        second.environment, third.environment = dict(first.environment), dict(first.environment)
        yield story


def test_three_machines_are_complete_and_polite_through_cuts_and_a_crash(lab: Lab, storm: Story) -> None:
    assert storm.codes == [0, 0, 0], "\n".join(machine.log[-2000:] for machine in lab.machines)
    lab.assert_complete(storm.crew, twice_at_most=3 * TWICE)


def test_two_that_join_in_one_instant_both_count(storm: Story) -> None:
    assert storm.shards["joined"] == 6


def test_the_first_machine_returns_by_the_same_command_and_adds_no_shards(storm: Story) -> None:
    assert "is running already; this machine joins it" in storm.log_of_return
    assert storm.shards["returned"] == 6


def test_machines_of_one_hostname_take_nothing_from_each_other(lab: Lab, storm: Story) -> None:
    for machine in lab.machines:
        assert "is dead, its" not in machine.log
        assert "now belongs to" not in machine.log


def test_clocks_an_hour_apart_neither_end_the_run_nor_are_seen(storm: Story) -> None:
    status = storm.crew.status()

    assert (status["state"], status["reason"]) == ("finished", "")
    assert storm.silent_s
    assert max(storm.silent_s) < 60


@pytest.fixture(scope="module")
def far(lab: Lab) -> Iterator[Story]:
    """Redis is far away; one loses the web for a while; one without settings dies and never returns."""
    first, second, third = lab.machines
    # Redis is too far for a lease of 3 s, and with such timeouts a wait for what is in flight would be seen.
    lab.settings |= {
        "CRAWL_SHARD_LEASE_SECONDS": str(LEASE_S),
        "CRAWL_HEADER_SECONDS": "5",
        "DOWNLOAD_TIMEOUT": "40",
    }
    first.environment["REDIS_URL"] = lab.far_redis(6380, 0.05)
    second.environment["REDIS_URL"] = lab.far_redis(6381, 0.2)
    with lab.web(LONGER) as crew:
        story = Story(crew)
        command = ("--run", "web", "--shards", "1", "--parsers", "1")
        ending = [first.run(*command)]
        crew.wait_for_fetched(1)
        crew.hold_open(held=True)
        ending.append(second.run(*command))
        third.run("--join", *command, seeds=False, CRAWL_SHARD_LEASE_SECONDS=str(LEASE_S))
        shards_alive(lab, 1, 1, 1)
        second.reach_web(can=False)
        wait_until(
            lambda: "no site can be reached from this machine" in second.log, "it is cut off, and says so"
        )
        fetch_more(crew, 5)
        second.reach_web(can=True)
        wait_until(lambda: "sites can be reached again" in second.shard_logs, "it is back")
        shards_alive(lab, 1, 1, 1)
        [number] = lab.shards_on(third)
        died_ms = third.crash()
        story.takeover_s = wait_until(lambda: first_after(crew, number, died_ms), "its domains are requested")
        crew.hold_open(held=False)
        story.codes = [process.wait() for process in ending]
        story.log_of_return = second.shard_logs
        yield story


def test_a_far_redis_a_joiner_without_settings_and_one_that_never_returns(lab: Lab, far: Story) -> None:
    assert far.codes == [0, 0], "\n".join(machine.log[-2000:] for machine in lab.machines)
    lab.assert_complete(far.crew, twice_at_most=TWICE)
    assert not far.crew.status()["by_reason"].get("address_refused")


def test_a_machine_that_reaches_no_site_leaves_its_domains_to_others(far: Story) -> None:
    handed_over = r"no site can be reached(.|\n)*released \d+ partitions(.|\n)*acquired \d+ partitions"

    assert re.search(handed_over, far.log_of_return)


def test_the_domains_of_a_dead_machine_are_taken_over_when_its_hold_expires(far: Story) -> None:
    """Not a download timeout later: the hold, a second, the delay, and what a busy machine takes."""
    assert DELAY_S < far.takeover_s < LEASE_S + 1 + DELAY_S + 30
