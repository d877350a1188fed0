"""Who holds a run on this machine."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from crawlproj.errors import ShardTaken
from crawlproj.supervisor.claim import claim_run


def test_a_run_that_is_taken_names_the_process_that_holds_it(tmp_path: Path) -> None:
    with claim_run(tmp_path, "web"):
        pid = (tmp_path / "supervisor.lock").read_text().strip()

        with pytest.raises(ShardTaken, match=f"already running in process {pid}"), claim_run(tmp_path, "web"):
            pass


def test_a_holder_that_has_not_written_its_id_yet_is_another_process(tmp_path: Path) -> None:
    with (tmp_path / "supervisor.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)

        with (
            pytest.raises(ShardTaken, match="already running in another process"),
            claim_run(tmp_path, "web"),
        ):
            pass
