"""Names that one process holds at a time, for as long as it renews them: a shard number, the leader."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from crawlproj.redisio.client import RedisClient


@dataclass(frozen=True, slots=True)
class ProcessName:
    """The identity of a process; another one on the same machine can check whether it is alive."""

    instance: str
    #: For people: machines may share a hostname.
    host: str
    pid: int
    #: Boot id of the kernel and PID namespace: where the PID means this process. '' if unknown.
    machine: str = ""
    #: When it started: a PID is reused.
    started: str = ""

    @classmethod
    def of_this(cls) -> ProcessName:
        pid, machine = os.getpid(), _machine()
        started = _start_of(pid) if machine else ""
        return cls(secrets.token_hex(6), socket.gethostname(), pid, machine, started)

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> ProcessName:
        """Return the process in *record*, without the fields that only another release knows."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known})

    @property
    def is_here(self) -> bool:
        """Whether this process is or was on this machine."""
        return (self.machine or self.host) == (_machine() or socket.gethostname())

    def is_dead(self) -> bool:
        """Whether this process is known to be dead. False for one on another machine, or of another boot."""
        if not self.machine or not self.is_here:
            return False
        try:
            return _start_of(self.pid) != self.started
        except OSError:
            # Gone, or hidden from us because it belongs to another user (hidepid).
            return not _exists(self.pid)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a name, and when it was renewed by the clock of Redis.

    ``starting``: a shard that has not admitted all its seeds yet; ``cut_off``: one that reaches no site.
    """

    process: ProcessName
    renewed_ms: int
    starting: bool = False
    cut_off: bool = False

    @classmethod
    def decode(cls, held: bytes) -> Holder:
        values = json.loads(held.partition(b" ")[2])
        process, cut_off = ProcessName.read(values["process"]), values.get("cut_off", False)
        return cls(process, values["renewed_ms"], values["starting"], cut_off)


async def hold_name(
    client: RedisClient,
    key: str,
    process: ProcessName,
    ttl_ms: int,
    *,
    starting: bool = False,
    cut_off: bool = False,
    figures: Mapping[str, object] | None = None,
    generation: int | None = None,
) -> Holder | None:
    """Claim or renew the name at *key*. Returns None on success, else who holds it.

    *figures* are shown to users; see `runs.overview`. Raises SetBack if *generation* is given and over.
    """
    known = {"process": asdict(process), "starting": starting, "cut_off": cut_off}
    known["figures"] = dict(figures or {})
    record = json.dumps(known, separators=(",", ":"))
    held = await client.run("hold_name", [key], [process.instance, record, ttl_ms], generation=generation)
    return Holder.decode(held) if held else None


async def drop_name(client: RedisClient, key: str, instance: str) -> None:
    """Release the name at *key*, held by us or by an instance known to be dead."""
    await client.run("drop_name", [key], [instance])


async def read_holders(client: RedisClient, names: Sequence[str]) -> list[Holder | None]:
    held = await client.command("MGET", *names)
    return [Holder.decode(value) if value else None for value in held]


def _machine() -> str:
    """Return boot id and PID namespace, '' without /proc. Another kernel or container has another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return the start time of a process in ticks since boot, '' for a zombie. Raises OSError."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "" if words[0] == "Z" else words[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as exc:
        return not isinstance(exc, ProcessLookupError)
    return True
