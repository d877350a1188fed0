"""A parser's guard: parses in a child process, and knows which page killed it.

Parsing runs C code over hostile input: it may crash or never return, and no Python in the same process can
help then. The child writes into shared memory which page it is parsing; a kernel timer kills it when that
takes too long; the guard counts that against the page, and starts the next child.
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

#: After this many deaths in a row without a page parsed, the pages are not at fault.
_MOST_VAIN = 5
_PR_SET_PDEATHSIG = 1
#: How often the guard checks whether its supervisor is alive.
_WATCH_S = 1.0
_NOTE = struct.Struct("=qqq")


class Notes:
    """The child's progress, in shared memory that its guard can still read when it is dead."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE.size)
        self._parsed = 0
        #: How often the parser has started over, each time with a list of its own.
        self.restarts = 0
        self.done()

    def reading(self, position: int) -> None:
        """Note that the page at *position* of this parser's list is being read."""
        _NOTE.pack_into(self._memory, 0, position, self._parsed, self.restarts)

    def done(self) -> None:
        """Note that no page is being read."""
        self._parsed += 1
        _NOTE.pack_into(self._memory, 0, -1, self._parsed, self.restarts)

    def read(self) -> tuple[int | None, int, int]:
        """Return the position of the page being read, if any, how many were, how often we started over."""
        position, parsed, restarts = _NOTE.unpack_from(self._memory, 0)
        return (None if position < 0 else position), parsed, restarts


@dataclass(frozen=True, slots=True)
class Death:
    """Child *number* was killed. ``position``: the page it was parsing."""

    number: int
    signum: int
    position: int | None
    #: How often it had started over.
    restarts: int = 0

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

    def start_over(self) -> None:
        """The parser has another list from now on."""
        self._notes.restarts += 1

    def start(self, position: int) -> None:
        self._notes.reading(position)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._notes.done()


def run_guarded(
    work: Callable[[int, Notes], int], on_death: Callable[[Death], None], *, supervisor: int = 0
) -> int:
    """Do *work* in a child, restarted until it exits by itself; returns its exit code.

    Children are numbered from 1. *on_death* is called in the guard for each child that was killed. SIGTERM
    and SIGINT are forwarded, and no child is started after them. The child never outlives its guard. It
    forks, so no thread may be running. If *supervisor* is given and is not, or no longer, the parent of this
    process, that counts as SIGTERM.
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
            position, parsed, restarts = notes.read()
            death = Death(number, os.WTERMSIG(status), position, restarts)
            logger.warning(
                "parser process %d died (%s)%s",
                child,
                signal.Signals(death.signum).name,
                "" if position is None else ", parsing a page",
            )
            # Pages that kill their parser are not counted here: each becomes a dead letter after a few times.
            in_vain = in_vain + 1 if parsed <= 1 and position is None else 0
            if in_vain >= _MOST_VAIN:
                logger.error("parser died %d times without parsing a page; giving up", in_vain)
                return 1
            on_death(death)
            # A child that dies at its start must not make this a busy loop.
            time.sleep(min(0.1 * 2**in_vain, 5.0) if in_vain else 0.0)


@contextmanager
def _watching(supervisor: int) -> Iterator[None]:
    """Send this process SIGTERM once *supervisor*, if there is one, is not its parent.

    By a timer, since it waits for a child. The timer also interrupts the wait: otherwise Python would not
    handle a signal that arrived just before it until the child ends.
    """

    def check(*_: object) -> None:
        if supervisor and os.getppid() != supervisor:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.raise_signal(signal.SIGTERM)

    # The timer is not inherited by a fork, so the child's own time limit is not disturbed.
    before = signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, 0.01, _WATCH_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Stopping:
    """Forwards SIGTERM and SIGINT to the child, and remembers them while there is none.

    They kill a child that has no handlers yet; the request to stop must not be lost with it.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.is_requested = False
        self.child: int | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._forward) for number in self._SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def fork(self, work: Callable[[Notes], int], notes: Notes) -> int | None:
        """Return a child that does *work*; None when a stop was requested.

        Signals are blocked until the child's pid is known.
        """
        guard = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._SIGNALS)
        # Checked here and not before, or a signal in between would be lost.
        if self.is_requested:
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

    def _forward(self, signum: int, _: object) -> None:
        self.is_requested = True
        if self.child is not None:
            try:
                os.kill(self.child, signum)
            except ProcessLookupError:
                pass

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _die_with(guard: int) -> None:
    """Make the kernel kill this process when its guard dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(1)
