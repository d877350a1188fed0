"""Processes forked beforehand. Each test is a Python of its own: one that has threads must not fork."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked beforehand elsewhere")

BEGIN = f"""
import os, signal, sys, time
from pathlib import Path
from crawlproj.supervisor.forkpool import ForkPool

def wait(process):
    deadline_s = time.monotonic() + {PATIENCE_S}
    while (code := process.poll()) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return code

forkpool = ForkPool()
prepared = []
turn = forkpool.fork(2, lambda: prepared.append(os.getpid()))
"""


def outcome_of(script: str, tmp_path: Path) -> str:
    """Run *script* behind BEGIN with OUTPUT as its only argument; returns what it prints."""
    command = [sys.executable, "-c", BEGIN + script, str(tmp_path / "output")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def test_a_forked_process_runs_the_job_it_gets(tmp_path: Path) -> None:
    printed = outcome_of(
        """
if turn is not None:
    is_alone = os.getsid(0) == os.getpid()
    print(Path("/proc/self/comm").read_text().strip(), turn, is_alone, len(sys.stdin.read()))
    sys.exit(7)
process = forkpool.start("shard 3", ["crawl", "web"], Path(sys.argv[1]))
print(wait(process), Path(sys.argv[1]).read_text().strip())
forkpool.close()
""",
        tmp_path,
    )

    assert printed == "7 shard 3 ['crawl', 'web'] True 0\n"


def test_what_all_of_them_need_was_done_once_before_they_came_to_be(tmp_path: Path) -> None:
    printed = outcome_of(
        """
if turn is not None:
    print(*prepared)
    sys.exit(0)
wait(forkpool.start("shard 0", [], Path(sys.argv[1])))
print(prepared == [os.getpid()], Path(sys.argv[1]).read_text().strip() == str(os.getpid()))
forkpool.close()
""",
        tmp_path,
    )

    assert printed == "True True\n"


def test_it_can_be_stopped_and_reports_the_signal(tmp_path: Path) -> None:
    printed = outcome_of(
        """
if turn is not None:
    signal.pause()
process = forkpool.start("shard 0", [], Path(sys.argv[1]))
process.send_signal(signal.SIGTERM)
print(wait(process))
process.kill()
forkpool.close()
""",
        tmp_path,
    )

    assert printed == "-15\n"


def test_those_that_are_not_needed_leave_with_their_parent(tmp_path: Path) -> None:
    printed = outcome_of("print(*(process.pid for process in forkpool._waiting))", tmp_path)

    # Its output was read to the end, so no process holds it open any more; they may still be exiting.
    assert all(_leaves(int(pid)) for pid in printed.split())


def test_in_place_of_one_that_died_waiting_a_new_python_is_started(tmp_path: Path) -> None:
    printed = outcome_of(
        """
for waiting in forkpool._waiting:
    os.kill(waiting.pid, signal.SIGKILL)
    os.waitid(os.P_PID, waiting.pid, os.WEXITED | os.WNOWAIT)
process = forkpool.start("shard 0", ["version"], Path(sys.argv[1]))
print(wait(process), Path(sys.argv[1]).read_text().split()[0])
""",
        tmp_path,
    )

    assert printed == "0 Scrapy\n"


def test_settings_of_a_new_python_arrive_and_are_not_on_its_command_line(tmp_path: Path) -> None:
    printed = outcome_of(
        """
if turn is not None:
    sys.exit(0)
forkpool.close()
arguments = ["settings", "--get=REDIS_PARAMS", "--set=REDIS_PARAMS=hunter2"]
process = forkpool.start("shard 0", arguments, Path(sys.argv[1]))
seen = set()
# Empty while it is begun and once it has ended.
while process.poll() is None:
    seen |= {Path(f"/proc/{process.pid}/cmdline").read_text()} - {""}
print(wait(process), Path(sys.argv[1]).read_text().strip(), len(seen) > 0, "hunter2" in "".join(seen))
""",
        tmp_path,
    )

    assert printed == "0 hunter2 True False\n"


def test_a_new_python_imports_nothing_from_where_a_person_works(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise ImportError(__file__)\n")

    printed = outcome_of(
        """
if turn is not None:
    sys.exit(0)
forkpool.close()
os.chdir(Path(sys.argv[1]).parent)
process = forkpool.start("scrapy", ["version"], Path(sys.argv[1]))
print(wait(process), Path(sys.argv[1]).read_text().split()[0])
""",
        tmp_path,
    )

    assert printed == "0 Scrapy\n"


def test_it_has_nothing_open_of_what_its_parent_was_given(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    script = """
if turn is not None:
    links = [Path("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    print(sorted({str(link.readlink()) for link in links if link.is_symlink()}))
    sys.exit()
process = forkpool.start("shard 0", [], Path(sys.argv[1]))
wait(process)
print(Path(sys.argv[1]).read_text())
forkpool.close()
"""
    command = [sys.executable, "-c", BEGIN + script, str(tmp_path / "output")]

    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, pass_fds=(writing,)
    ).stdout
    os.close(reading)
    os.close(writing)

    assert printed.strip() == str(sorted(["/dev/null", str(tmp_path / "output")]))


def test_its_end_is_seen_where_the_system_keeps_no_exit_codes(tmp_path: Path) -> None:
    printed = outcome_of(
        """
if turn is not None:
    sys.exit(7)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
process = forkpool.start("shard 0", [], Path(sys.argv[1]))
print(wait(process))
forkpool.close()
""",
        tmp_path,
    )

    assert printed == "0\n"


def _leaves(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(process):
        return bool(select.select([process], [], [], 20)[0])


def test_the_cpu_time_of_a_process_includes_that_of_its_children(tmp_path: Path) -> None:
    printed = outcome_of(
        """
if turn is not None:
    pid = os.fork()
    if pid == 0:
        while time.process_time() < 0.2:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    sys.exit(0)
process = forkpool.start("shard 0", [], Path(sys.argv[1]))
print(process.cpu_s, wait(process), process.cpu_s >= 0.2)
forkpool.close()
""",
        tmp_path,
    )

    assert printed == "0.0 0 True\n"
