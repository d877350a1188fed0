"""Who is known to be dead: a process of this machine that is gone, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from crawlproj.redisio.names import ProcessName

#: A PID that no process has: it is above the limit of every Linux.
NO_PID = 2**22 + 1


@pytest.fixture
def here() -> ProcessName:
    name = ProcessName.of_this()
    if not name.machine:
        pytest.skip("only Linux has a boot id")
    return name


def test_a_live_process_is_not_dead(here: ProcessName) -> None:
    assert here.is_here
    assert not here.is_dead()


def test_a_process_of_this_machine_that_is_gone_is_dead(here: ProcessName) -> None:
    assert replace(here, pid=NO_PID).is_dead()


def test_a_process_whose_pid_another_has_now_is_dead(here: ProcessName) -> None:
    assert replace(here, started="1").is_dead()


def test_a_zombie_is_dead(here: ProcessName) -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert replace(here, pid=child.pid).is_dead()


@pytest.mark.parametrize("pid", [NO_PID, os.getpid()], ids=["gone", "alive"])
def test_nobody_of_another_boot_is_known_to_be_dead_though_the_hostname_is_ours(
    here: ProcessName, pid: int
) -> None:
    boot, _, namespace = here.machine.partition(" ")
    other_boot = replace(here, pid=pid, machine=f"0{boot[1:]}x {namespace}", started="1")
    container = replace(here, pid=pid, machine=f"{boot} pid:[1]", started="1")

    for other in (other_boot, container):
        assert not other.is_here
        assert not other.is_dead()


def test_the_hostname_does_not_matter(here: ProcessName) -> None:
    renamed = replace(here, host="renamed")

    assert renamed.is_here
    assert replace(renamed, pid=NO_PID).is_dead()


def test_a_record_of_an_earlier_release_is_read_and_its_process_not_known_to_be_dead(
    here: ProcessName,
) -> None:
    earlier = {"instance": "a", "host": here.host, "pid": NO_PID, "started": "boot:1", "space": "pid:[1]"}

    process = ProcessName.read(earlier)

    assert (process.instance, process.pid) == ("a", NO_PID)
    assert not process.is_dead()
    assert ProcessName.read(asdict(here)) == here


_HIDDEN = """
import os, subprocess, sys
from crawlproj.redisio.names import ProcessName
from dataclasses import replace
root, gone = ProcessName.of_this(), int(sys.argv[1])
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(os.path.exists(f"/proc/{root.pid}"), root.is_dead(), replace(root, pid=gone).is_dead())
"""


def test_a_process_that_is_hidden_from_this_user_is_not_dead(here: ProcessName) -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("only root may hide processes from other users")

    hidden = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", _HIDDEN, str(NO_PID)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert hidden.stdout == "False False True\n"
