"""The guard of a parser, with children that really die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

#: A program that forks away from pytest: `work` is in its argument, deaths are printed.
PROGRAM = """
import json, os, signal, sys, time
from crawlproj.parsing.guard import Notes, TimeLimit, run_guarded

def report(death):
    print(json.dumps([death.signum, death.position, death.reason]), flush=True)

def work(number, notes):
    limit = TimeLimit(notes, 600)
WORK
sys.exit(run_guarded(work, report))
"""


def guarded(work: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    body = "".join(f"    {line}\n" for line in work.strip().splitlines())
    return subprocess.Popen(
        [sys.executable, "-c", program.replace("WORK", body)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, list[Any]]:
    out, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, [json.loads(line) for line in out.splitlines()]


def test_a_child_that_leaves_by_itself_gives_its_exit_code() -> None:
    code, deaths = outcome(guarded("return 5"))

    assert (code, deaths) == (5, [])


def test_a_page_that_hangs_is_named_and_work_continues() -> None:
    work = """
if number == 1:
    limit = TimeLimit(notes, 0.3)
    limit.start(7)
    while True: pass
return 0
"""

    code, deaths = outcome(guarded(work))

    assert code == 0
    assert deaths == [[signal.SIGALRM, 7, "took longer than CRAWL_PARSE_SECONDS"]]


def test_a_page_that_crashes_its_parser_is_named() -> None:
    work = """
if number == 1:
    limit.start(0)
    limit.stop()
    limit.start(1)
    os.kill(os.getpid(), signal.SIGSEGV)
return 0
"""

    code, deaths = outcome(guarded(work))

    assert code == 0
    assert deaths == [[signal.SIGSEGV, 1, "killed its parser with SIGSEGV"]]


def test_a_child_killed_between_pages_blames_none() -> None:
    work = """
limit.start(3)
limit.stop()
if number == 1:
    os.kill(os.getpid(), signal.SIGKILL)
return 0
"""

    code, deaths = outcome(guarded(work))

    assert code == 0
    assert deaths == [[signal.SIGKILL, None, "killed its parser with SIGKILL"]]


def test_each_page_has_the_whole_time_and_afterwards_none_is_running() -> None:
    work = """
left_s = lambda: signal.getitimer(signal.ITIMER_REAL)[0]
for position in range(2):
    limit.start(position)
    if not 300 < left_s() <= 600: return 8
    limit.stop()
    if left_s(): return 9
    signal.setitimer(signal.ITIMER_REAL, 200)
return 0
"""

    assert outcome(guarded(work)) == (0, [])


def test_a_parser_that_dies_before_any_page_is_given_up() -> None:
    code, deaths = outcome(guarded("os.kill(os.getpid(), signal.SIGKILL)"))

    assert code == 1
    assert len(deaths) == 4


def test_a_request_to_stop_reaches_the_child() -> None:
    work = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
print(json.dumps("ready"), flush=True)
# A signal just before one sleep is handled after it.
while True: time.sleep(0.1)
"""
    process = guarded(work)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == "ready"

    process.terminate()

    assert outcome(process)[0] == 9


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_child_never_outlives_its_guard() -> None:
    process = guarded("print(json.dumps(os.getpid()), flush=True)\ntime.sleep(100)\nreturn 0")
    assert process.stdout is not None
    child = json.loads(process.stdout.readline())

    process.kill()
    # Not communicate(): that waits for the end of the child, too, which has the other end of the pipe.
    process.wait()

    deadline = time.monotonic() + PATIENCE_S
    while _lives(child):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            pytest.fail("the child outlived its guard")
        time.sleep(0.01)
    process.communicate()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_parser_whose_supervisor_is_gone_leaves_as_on_sigterm() -> None:
    abandoned = PROGRAM.replace("report))", "report, supervisor=1))")
    work = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print(json.dumps("at work"), flush=True)
time.sleep(20)
return 9
"""

    code, _ = outcome(guarded(work, abandoned))

    assert code == 0


def test_a_parser_whose_supervisor_lives_is_left_alone() -> None:
    watched = PROGRAM.replace("report))", f"report, supervisor={os.getpid()}))")

    code, deaths = outcome(guarded("time.sleep(0.3)\nreturn 5", watched))

    assert (code, deaths) == (5, [])


def test_a_request_to_stop_just_before_a_child_is_started_is_not_lost() -> None:
    # The last thing made before the fork; the second time, after the death of the first child.
    program = PROGRAM.replace(
        "def report",
        """
import crawlproj.parsing.guard as guard
class Interrupting(Notes):
    made = 0
    def __init__(self):
        super().__init__()
        Interrupting.made += 1
        if Interrupting.made == 2: os.kill(os.getpid(), signal.SIGTERM)
guard.Notes = Interrupting

def report""",
        1,
    )
    work = """
if number == 1: os.kill(os.getpid(), signal.SIGKILL)
return 3
"""

    code, deaths = outcome(guarded(work, program))

    assert (code, len(deaths)) == (0, 1)
