"""Forks the first processes of a crawl before it begins, so that they share Python and Scrapy's imports.

They are forked while the parent has no open files, loop or threads, and wait for a job. Processes started
later, to replace dead ones, are new Pythons.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from crawlproj.supervisor import child


class ForkPool:
    """Starts `scrapy` processes, using the forked ones first."""

    def __init__(self) -> None:
        self._waiting: list[Started] = []

    def fork(self, count: int, prepare: Callable[[], None] = lambda: None) -> list[str] | None:
        """Call *prepare*, then fork *count* waiting processes; returns None in the parent.

        In a child it returns the arguments of the command to run, once there is one; a child that is never
        needed exits. Call it before anything is opened or started.
        """
        if sys.platform != "linux":
            # Elsewhere system libraries may not survive a fork.
            return None
        prepare()
        # A collection in a child would copy the pages it shares with the parent.
        gc.freeze()
        for _ in range(count):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                return _wait_for_job(reading)
            os.close(reading)
            self._waiting.append(Started(pid, writing))
        gc.unfreeze()
        return None

    def start(self, name: str, arguments: Sequence[str], output: Path) -> Started:
        """Start ``scrapy`` with *arguments*; what it prints is appended to *output*.

        *name* is shown by ``ps``: the command line of a forked process is its parent's. Settings among the
        arguments are not shown, as they may be secrets.
        """
        job = {"name": name, "arguments": list(arguments), "output": str(output)}
        while self._waiting:
            forked = self._waiting.pop(0)
            if forked.wake(json.dumps(job)):
                return forked
        words, environment = child.command("crawlproj.project", arguments)
        with output.open("ab") as file:
            process = subprocess.Popen(
                words,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                # Ctrl-C is for the supervisor, which stops its children in order.
                start_new_session=True,
            )
        # We wait for it ourselves, and Popen need not warn that nobody does.
        process.returncode = 0
        return Started(process.pid)

    def close(self) -> None:
        """Dismiss the processes that were not needed."""
        while self._waiting:
            self._waiting.pop().dismiss()


class Started:
    """A process of ours. A forked one waits for its job on *pipe* first."""

    def __init__(self, pid: int, pipe: int = -1) -> None:
        self.pid = pid
        #: What it and its own children have used, once it has ended.
        self.cpu_s = 0.0
        self._pipe = pipe
        self._code: int | None = None

    def wake(self, job: str) -> bool:
        """Send it the job; returns False when it is dead."""
        try:
            with os.fdopen(self._pipe, "w") as pipe:
                pipe.write(job)
        except BrokenPipeError:
            self._reap(0)
            return False
        return True

    def dismiss(self) -> None:
        os.close(self._pipe)
        self._reap(0)

    def poll(self) -> int | None:
        if self._code is None:
            self._reap(os.WNOHANG)
        return self._code

    def _reap(self, options: int) -> None:
        try:
            pid, status, usage = os.wait4(self.pid, options)
        except ChildProcessError:
            # SIGCHLD is ignored, so the exit code is lost; 0, as in `subprocess`.
            self._code = 0
            return
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime

    def send_signal(self, sig: int, /) -> None:
        # Not to a reaped process: its pid may have been reused.
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _wait_for_job(pipe: int) -> list[str]:
    """Return the arguments sent through *pipe*; exits when it is closed without any."""
    # Ctrl-C and the terminal belong to the supervisor.
    os.setsid()
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(devnull, fd)
    os.close(devnull)
    # Close what was inherited, as `subprocess` does: locks, pipes that are read to their end.
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        with os.fdopen(pipe) as lines:
            text = lines.read()
    except KeyboardInterrupt:
        # It arrived before setsid().
        text = ""
    if not text:
        os._exit(0)
    job = json.loads(text)
    output = os.open(job["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    with suppress(OSError):
        Path("/proc/self/comm").write_text(job["name"])
    return list(job["arguments"])
