"""Names that one process holds at a time, for as long as it renews them: a shard number, the leader."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from crawlproj.redisio.client import Door


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A process, named so that one on the same machine can tell whether it still lives."""

    instance: str
    host: str
    pid: int
    started: str
    #: The namespace of its number: containers may share a host's name, but not this.
    space: str = ""

    @classmethod
    def of_this(cls) -> ProcessName:
        pid = os.getpid()
        return cls(secrets.token_hex(6), socket.gethostname(), pid, _start_of(pid), _space())

    def is_dead(self) -> bool:
        """Whether this process surely is gone. Of another machine we cannot know."""
        here = (self.host, self.space) == (socket.gethostname(), _space())
        return here and bool(self.started) and _start_of(self.pid) != self.started


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a name. ``starting`` is said by a shard whose seeds are not all admitted yet."""

    process: ProcessName
    renewed_ms: int
    starting: bool = False

    @classmethod
    def decode(cls, held: bytes) -> Holder:
        values = json.loads(held.partition(b" ")[2])
        return cls(ProcessName(**values["process"]), values["renewed_ms"], values["starting"])


async def hold_name(
    door: Door,
    key: str,
    process: ProcessName,
    ttl_ms: int,
    *,
    starting: bool = False,
    figures: Mapping[str, object] | None = None,
) -> Holder | None:
    """Take or keep the name at *key*. Returns None when it is ours, else who holds it.

    *figures* are for people who look; see `runs.overview`.
    """
    holder = Holder(process, int(time.time() * 1000), starting)
    record = json.dumps({**asdict(holder), "figures": dict(figures or {})}, separators=(",", ":"))
    held = await door.run("hold_name", [key], [process.instance, record, ttl_ms])
    return Holder.decode(held) if held else None


async def drop_name(door: Door, key: str, instance: str) -> None:
    """Give up the name at *key*, or free it from an instance known to be dead."""
    await door.run("drop_name", [key], [instance])


async def read_holders(door: Door, names: Sequence[str]) -> list[Holder | None]:
    held = await door.command("MGET", *names)
    return [Holder.decode(value) if value else None for value in held]


def _start_of(pid: int) -> str:
    """Return boot and start time of a process, '' when there is none: numbers alone are used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else f"{boot}:{fields[19]}"


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
