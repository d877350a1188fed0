"""A short seed of `make chaos`; and what its verdict must notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.schedule import Kind, draw

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
SHORT = ("--seed", "3", "--pages", "400", "--faults", "6", "--set-backs", "2", "--seconds", "100")
#: Those that need neither root nor a compiler.
EVERYWHERE = ("--only", "kill,stop,network,set-back,resize")


def chaos(temporary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_tormented_crawl_loses_nothing_and_ends(tmp_path: Path) -> None:
    finished = chaos(tmp_path, *SHORT, *EVERYWHERE)

    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-1000:]
    assert "6 of 6 faults" in finished.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("sin", "verdict"), [("lose", "lost: http"), ("double", "stored twice: http")])
def test_the_verdict_notices_a_spoilt_store(tmp_path: Path, sin: str, verdict: str) -> None:
    finished = chaos(
        tmp_path, "--seed", "1", "--pages", "60", "--faults", "1", "--only", "kill", "--sin", sin
    )

    assert finished.returncode == 1, finished.stdout
    assert verdict in finished.stdout
    assert (
        f"python -m tests.chaos --seed 1 --pages 60 --faults 1 --only kill --sin {sin}\n" in finished.stdout
    )
    [kept] = tmp_path.iterdir()
    assert (kept / "access.jsonl").exists()
    assert list((kept / "data").rglob("*.parquet"))


def test_a_seed_gives_the_same_schedule_with_every_kind_and_as_many_set_backs_as_asked_for() -> None:
    first, second = (draw(7, set(Kind), 20_000, 57, set_backs=20) for _ in range(2))

    assert first == second
    assert first != draw(8, set(Kind), 20_000, 57, set_backs=20)
    assert {fault.kind for fault in first} == set(Kind)
    assert sum(fault.kind is Kind.SET_BACK for fault in first) == 20
