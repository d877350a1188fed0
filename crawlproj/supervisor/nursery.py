"""The first processes of a crawl, forked before it begins: they need not start Python nor import Scrapy.

They are forked while their parent has nothing open, no loop and no thread, and wait for their turn. One that
is started later, in place of a dead one, is a new Python.
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
from typing import Protocol, cast


class Process(Protocol):
    """What is used of a `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...


class Nursery:
    """Starts processes of `scrapy`; those that were forked beforehand first."""

    def __init__(self) -> None:
        self._waiting: list[_Forked] = []

    def fork(self, count: int, prepare: Callable[[], None] = lambda: None) -> list[str] | None:
        """Fork *count* processes that wait, after *prepare* for all of them; returns None in the parent.

        In each of them it returns when its turn has come, with the arguments of the command it is to be. It
        does not return in one that is not needed. Call it before anything is opened or started.
        """
        if sys.platform != "linux":
            # Elsewhere the system's own libraries may not survive it.
            return None
        prepare()
        # What is there by now stays in them: a search for garbage would only copy it.
        gc.freeze()
        for _ in range(count):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                return _wait_for_turn(reading)
            os.close(reading)
            self._waiting.append(_Forked(pid, writing))
        gc.unfreeze()
        return None

    def start(self, name: str, arguments: Sequence[str], output: Path) -> Process:
        """Start ``scrapy`` with *arguments*; what it prints is appended to *output*.

        *name* is for people who look at processes: of one that was forked they see the command line of its
        parent.
        """
        turn = {"name": name, "arguments": list(arguments), "output": str(output)}
        while self._waiting:
            process = self._waiting.pop(0)
            if process.wake(json.dumps(turn)):
                return process
        with output.open("ab") as file:
            return cast(
                Process,
                subprocess.Popen(
                    [sys.executable, "-m", "scrapy.cmdline", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    # Ctrl-C is for the supervisor, who stops its children in order.
                    start_new_session=True,
                ),
            )

    def close(self) -> None:
        """Let those go that still wait."""
        while self._waiting:
            self._waiting.pop().dismiss()


class _Forked:
    """A process that waits at the other end of a pipe for what it is to do."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self._pipe = pipe
        self._code: int | None = None

    def wake(self, turn: str) -> bool:
        """Tell it what to be; returns False when it is gone."""
        try:
            with os.fdopen(self._pipe, "w") as pipe:
                pipe.write(turn)
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
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:
            # We were started with SIGCHLD ignored: nobody will know how it ended. As `subprocess` has it.
            pid, status = self.pid, 0
        self._code = os.waitstatus_to_exitcode(status) if pid else None

    def send_signal(self, sig: int, /) -> None:
        # Not to one that was reaped: its number may be another's by now.
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _wait_for_turn(pipe: int) -> list[str]:
    """Return the arguments that come through *pipe*; leave when it is closed without any."""
    # Ctrl-C is for the supervisor, and so is whoever reads what it prints.
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)
    # What our parent was given, perhaps a lock or a pipe that somebody waits for the end of, and the pipes of
    # the others: a new Python would not have them, either.
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        with os.fdopen(pipe) as lines:
            turn = lines.read()
    except KeyboardInterrupt:
        # It came before the session was ours.
        turn = ""
    if not turn:
        os._exit(0)
    words = json.loads(turn)
    output = os.open(words["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    with suppress(OSError):
        Path("/proc/self/comm").write_text(words["name"])
    return list(words["arguments"])
