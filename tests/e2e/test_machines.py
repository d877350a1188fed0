"""Two machines of one hostname on one run: nothing is taken from the living."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import EXIT_SHARD_TAKEN
from crawlproj.simweb.spec import WorldSpec

pytestmark = pytest.mark.e2e

#: Given the file of its boot id, runs a command under the hostname 'box'. Children stay in its namespaces.
_MACHINE = ["unshare", "--uts", "--mount", "sh", "-c"]
_BECOME = 'hostname box && mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


@pytest.fixture
def machine_of(tmp_path: Path) -> Callable[[str], list[str]]:
    """Returns what to put before a command so that it runs on a machine of its own, named like the others."""

    def machine(name: str) -> list[str]:
        boot_id = tmp_path / f"boot-id-{name}"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        before = [*_MACHINE, _BECOME, str(boot_id)]
        if os.geteuid() != 0 or subprocess.run([*before, "true"], check=False).returncode != 0:
            pytest.skip("only root may have machines of its own")
        return before

    return machine


def test_machines_of_one_hostname_take_nothing_from_each_other(
    crew_of: Callable[..., Any], machine_of: Callable[[str], list[str]]
) -> None:
    crew = crew_of(
        WorldSpec(seed=3, domains=10, pages_per_domain=20, size_spread=0.3), CRAWL_SHARD_LEASE_SECONDS="30"
    )
    one, other = machine_of("one"), machine_of("other")
    crew.environment = {"CRAWL_SEGMENT_SECONDS": "1"}
    crew.before = one
    shard = crew.shard(0, "shards=2", f"seeds={crew.seeds_file}")
    parsers = [crew.parser()]
    crew.wait_for_fetched(5)

    crew.before = other
    thief = crew.shard(0)
    assert thief.wait() == EXIT_SHARD_TAKEN, thief.log[-3000:]
    neighbour = crew.shard(1)
    parsers.append(crew.parser())
    crew.finish(shard, neighbour, *parsers)

    assert thief.says("Shard 0 of run 'web' is already running on box")
    for process in (shard, neighbour, *parsers):
        assert not process.says("is dead, its"), process.log[-3000:]
        assert not process.says("now belongs to"), process.log[-3000:]
    crew.assert_content()
