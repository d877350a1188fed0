"""Does what a document says: types the commands of its ``console`` blocks and compares what they print.

A block is a terminal as a reader sees it: ``$ `` before a command, ``> `` before its further lines, ``^C``
for Ctrl-C, and below it what is printed. ``...`` stands for any text within a line, alone for any lines. The
word after ``console`` names the terminal; it stays open until the end of the document. Every command must end
with code 0 before the next one in its terminal. It may run beside other terminals if its own continues with
``^C``, or with a block that begins with what it prints later.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import PATIENCE_S

#: Longer than any command takes here, on a machine that does other things besides.
_BLOCK = re.compile(r"^```console(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDED = r"((?:.*\n)*?)exit-code (\d+)\n"
_CTRL_C = "^C"


@dataclass
class Step:
    """One command, a key, or nothing, and what is printed then."""

    terminal: str
    typed: str
    printed: list[str] = field(default_factory=list)
    #: Whether the command has ended then.
    ends: bool = True


def steps_in(text: str) -> list[Step]:
    steps: list[Step] = []
    for terminal, block in _BLOCK.findall(text):
        for number, line in enumerate(block.splitlines()):
            if line.startswith("> ") and number and not steps[-1].printed:
                steps[-1].typed += f"\n{line[2:]}"
            elif line.startswith("$ ") or line == _CTRL_C:
                steps.append(Step(terminal, line.removeprefix("$ ")))
            else:
                steps += [] if number else [Step(terminal, "")]
                steps[-1].printed.append(line)
    latest: dict[str, Step] = {}
    for step in steps:
        if step.typed in ("", _CTRL_C):
            latest[step.terminal].ends = False
        latest[step.terminal] = step
    return steps


def pattern_of(lines: list[str]) -> str:
    """Return the regular expression of what *lines* show."""
    return "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + r" *\n"
        for line in lines
    )


class Terminal:
    """A shell in *folder*; its output is kept in *log*."""

    def __init__(self, folder: Path, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self._read = 0
        with log.open("wb") as out:
            self._shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def do(self, step: Step) -> None:
        """Type what *step* says and wait for what it shows; raises AssertionError if that does not come."""
        if step.typed == _CTRL_C:
            os.killpg(self._shell.pid, signal.SIGINT)
        elif step.typed:
            assert self._shell.stdin is not None
            self._shell.stdin.write(f"{step.typed}\necho exit-code $?\n".encode())
            self._shell.stdin.flush()
        shown = "\n".join(step.printed)
        if not step.ends:
            self._read_until(pattern_of(step.printed), f"{step.typed!r} prints\n{shown}")
            return
        printed, code = self._read_until(_ENDED, f"{step.typed!r} ends").groups()
        assert code == "0", f"{step.typed!r} ended with {code}:\n{printed}"
        is_right = re.fullmatch(pattern_of(step.printed), printed)
        assert is_right, f"{step.typed!r} printed\n{printed}\ninstead of\n{shown}"

    def close(self) -> None:
        """Kill the shell and what runs in it."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()

    def _read_until(self, pattern: str, what: str) -> re.Match[str]:
        """Wait until what is printed next begins with *pattern*, and take that as read."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            text = self._log.read_text("utf-8", errors="replace")[self._read :]
            if found := re.match(pattern, text):
                self._read += found.end()
                return found
            assert self._shell.poll() is None, f"the terminal is gone before {what}; there is\n{text}"
            has_time = time.monotonic() < deadline and not re.match(_ENDED, text)
            assert has_time, f"waited in vain until {what}; there is\n{text}"
            time.sleep(0.02)


def follow(text: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Do everything that the document *text* says, in *folder*."""
    terminals: dict[str, Terminal] = {}
    try:
        for step in steps_in(text):
            if step.terminal not in terminals:
                log = folder / f"terminal-{step.terminal or 'main'}.log"
                terminals[step.terminal] = Terminal(folder, log, environment)
            terminals[step.terminal].do(step)
    finally:
        for terminal in terminals.values():
            terminal.close()
