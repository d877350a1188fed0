"""A parser's guard: parses in a child process, and knows which page killed it.

Parsing runs C code over hostile input: it may crash or never return, and no Python in the same process can
help then. The child notes in shared memory which page it reads; the kernel's timer ends it when that takes
too long; the guard blames the page, and starts the next child.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

logger = logging.getLogger(__name__)

#: Deaths in a row with no page parsed in between, after which it is not the pages' fault.
_HOPELESS = 5
_PR_SET_PDEATHSIG = 1
#: How often the guard looks whether its supervisor is still there.
_WATCH_S = 1.0
_NOTE = struct.Struct("=qq")


class Notes:
    """What the child says about itself, in memory its guard can still read when it is dead."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE.size)
        self._parsed = 0
        self.done()

    def reading(self, position: int) -> None:
        """Note that the page at *position* of this parser's list is being read."""
        _NOTE.pack_into(self._memory, 0, position, self._parsed)

    def done(self) -> None:
        """Note that no page is being read."""
        self._parsed += 1
        _NOTE.pack_into(self._memory, 0, -1, self._parsed)

    def read(self) -> tuple[int | None, int]:
        """Return the position of the page being read, if any, and a number that grows with every page."""
        position, parsed = _NOTE.unpack_from(self._memory, 0)
        return (None if position < 0 else position), parsed


@dataclass(frozen=True, slots=True)
class Death:
    """The *number*-th child did not leave by itself. ``position``: the page it was reading."""

    number: int
    signum: int
    position: int | None

    @property
    def reason(self) -> str:
        if self.signum == signal.SIGALRM:
            return "took longer than CRAWL_PARSE_SECONDS"
        return f"killed its parser with {signal.Signals(self.signum).name}"


class TimeLimit:
    """Ends this process when a page takes longer than *limit_s*. Not catchable, on purpose."""

    def __init__(self, notes: Notes, limit_s: float) -> None:
        self._notes = notes
        self._limit_s = limit_s
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def start(self, position: int) -> None:
        self._notes.reading(position)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._notes.done()


def run_guarded(
    work: Callable[[int, Notes], int], on_death: Callable[[Death], None], *, supervisor: int = 0
) -> int:
    """Do *work* in a child, again and again until it leaves by itself; returns its exit code.

    Children are numbered from 1. *on_death* is called in the guard for each child that was killed. SIGTERM
    and SIGINT are handed on, and no child is started after them. The child never outlives its guard. No
    thread may run when this is called: it forks. When *supervisor* is given and not, or no longer, the parent
    of this process, that is as good as SIGTERM.
    """
    in_vain = number = 0
    with _Stopping() as stopping, _watching(supervisor):
        while True:
            number += 1
            notes = Notes()
            child = stopping.fork(partial(work, number), notes)
            if child is None:
                return 0
            status = os.waitpid(child, 0)[1]
            stopping.child = None
            if not os.WIFSIGNALED(status):
                return os.waitstatus_to_exitcode(status)
            position, parsed = notes.read()
            death = Death(number, os.WTERMSIG(status), position)
            logger.warning(
                "parser process %d died (%s)%s",
                child,
                signal.Signals(death.signum).name,
                "" if position is None else ", reading a page",
            )
            # A page that kills is no reason to give up: after a few times it is a dead letter.
            in_vain = in_vain + 1 if parsed <= 1 and position is None else 0
            if in_vain >= _HOPELESS:
                logger.error("parser died %d times without reading a page; giving up", in_vain)
                return 1
            on_death(death)
            # A child that dies at its start must not make this a busy loop.
            time.sleep(min(0.1 * 2**in_vain, 5.0) if in_vain else 0.0)


@contextmanager
def _watching(supervisor: int) -> Iterator[None]:
    """Send this process SIGTERM once *supervisor*, if there is one, is not its parent.

    By a timer, as it waits for a child. It also ends the wait for a moment: Python would not see a signal
    that came just before it until the child ends.
    """

    def look(*_: object) -> None:
        if supervisor and os.getppid() != supervisor:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.raise_signal(signal.SIGTERM)

    # The timer is not inherited by a fork, so the child's own time limit is not disturbed.
    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.01, _WATCH_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Stopping:
    """Hands SIGTERM and SIGINT on to the child, and remembers them for when there is none.

    A child is killed by them until it has handlers of its own; the request must not be lost with it.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.asked = False
        self.child: int | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._hand_on) for number in self._SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def fork(self, work: Callable[[Notes], int], notes: Notes) -> int | None:
        """Return a child at *work*, None when it is not wanted any more.

        A signal that comes meanwhile waits until the child's number is known.
        """
        guard = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._SIGNALS)
        # Looked at here and not before: one that came in between would be handed on to nobody.
        if self.asked:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._SIGNALS)
            return None
        child = os.fork()
        if child:
            self.child = child
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._SIGNALS)
            return child
        code = 1
        try:
            self._restore()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._SIGNALS)
            _die_with(guard)
            code = work(notes)
        finally:
            # Not sys.exit(): the rest of the stack belongs to the guard.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _hand_on(self, signum: int, _: object) -> None:
        self.asked = True
        if self.child is not None:
            try:
                os.kill(self.child, signum)
            except ProcessLookupError:
                pass

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _die_with(guard: int) -> None:
    """Have the kernel kill this process when its guard dies: nobody parses unguarded."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(1)
