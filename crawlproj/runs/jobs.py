"""Jobs in Redis: what a caller asked for, before and while a run does it. Its id is the run's name."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crawlproj.model.urls import domain_of
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import read_holders

#: How long an idempotency key is remembered.
_KEY_MS = 86_400_000
_FIELDS = ("created_ms", "request", "held", "error", "starts", "started_ms")
#: A name may have 64 characters; a number is appended to those that are taken.
_MOST_STEM = 48
_MOST_NAMES = 10_000


class NameTaken(Exception):
    """There is a run or a job of this name."""


class TooManyJobs(Exception):
    """As many jobs as may be open are."""


class KeyReused(Exception):
    """The idempotency key came with another request before."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it is recorded.

    ``held``: '', or 'paused' or 'stopped' before it began. ``error``: why it cannot be started. ``starts``:
    how often it was started in a row, the last time at ``started_ms``.
    """

    id: str
    created_ms: int = 0
    request: dict[str, Any] = field(default_factory=dict)
    held: str = ""
    error: str = ""
    starts: int = 0
    started_ms: int = 0


class JobRecords:
    """All jobs in this Redis. Every server may use it at any time."""

    def __init__(self, client: RedisClient, most_open: int = 1000) -> None:
        self._client = client
        self._most_open = most_open

    async def create(
        self,
        name: str,
        request: dict[str, Any],
        seeds: list[str],
        *,
        is_stem: bool = False,
        key: str = "",
        digest: str = "",
    ) -> tuple[str, bool]:
        """Record a job; returns its id, and whether it is new.

        *is_stem*: a number is appended to a name that is taken. A *key* that was used before, with a request
        of the same *digest*, returns the job of that time. Raises NameTaken, TooManyJobs or KeyReused.
        """
        stem = name[:_MOST_STEM] if is_stem else name
        for number in range(1, _MOST_NAMES):
            run = stem if number == 1 else f"{stem}-{number}"
            how, answer = await self._create(run, request, seeds, key, digest)
            if how == "created":
                return run, True
            if how == "known":
                known, _, run = answer.partition(" ")
                if known != digest:
                    raise KeyReused(run)
                return run, False
            if how == "full":
                raise TooManyJobs
            if not is_stem:
                break
        raise NameTaken(stem)

    async def _create(
        self, run: str, request: dict[str, Any], seeds: list[str], key: str, digest: str
    ) -> tuple[str, str]:
        keys.check_run_name(run)
        fields = ("request", json.dumps(request), "seeds", "\n".join(seeds))
        if await self._client.command("EXISTS", keys.run_record(run)):
            # Its key may be that of this very request.
            answer = await self._client.command("GET", keys.job_answer(key)) if key else None
            return ("known", answer.decode()) if answer else ("taken", "")
        how, answer = await self._client.run(
            "create_job",
            [keys.job(run), keys.jobs(), keys.jobs_open(), keys.job_answer(key)],
            [
                run,
                await server_ms(self._client),
                secrets.token_hex(8),
                _KEY_MS if key else 0,
                digest,
                self._most_open,
                *fields,
            ],
        )
        return how.decode(), answer.decode()

    async def adopt(self, run: str) -> None:
        """Record a run that was started elsewhere, so that servers start it again; nothing if it is one."""
        await self._client.run("write_fields", [keys.job(run)], ["held", "", "error", "", "starts", 0])
        now_ms = await server_ms(self._client)
        await self._client.pipeline(
            [
                ("HSETNX", keys.job(run), "created_ms", now_ms),
                ("ZADD", keys.jobs(), "NX", now_ms, run),
                ("ZADD", keys.jobs_open(), "NX", now_ms, run),
            ]
        )

    async def find(self, run: str) -> JobRecord | None:
        [record] = await self.find_all([run])
        return record

    async def find_all(self, runs: list[str]) -> list[JobRecord | None]:
        answers = await self._client.pipeline([("HMGET", keys.job(run), *_FIELDS) for run in runs])
        return [_record(run, values) for run, values in zip(runs, answers, strict=True)]

    async def read_seeds(self, run: str) -> list[str]:
        text = await self._client.command("HGET", keys.job(run), "seeds")
        return text.decode().splitlines() if text else []

    async def add_seeds(self, run: str, seeds: Sequence[str]) -> int:
        """Add *seeds* to a job that waits; returns how many are new."""
        new: int = await self._client.run("add_job_seeds", [keys.job(run)], seeds)
        return new

    async def update(self, run: str, **fields: str | int) -> None:
        words = [word for item in fields.items() for word in item]
        await self._client.run("write_fields", [keys.job(run)], words)

    async def names(self) -> list[str]:
        return [name.decode() for name in await self._client.command("ZRANGE", keys.jobs(), 0, -1)]

    async def open_names(self) -> list[str]:
        """Return the jobs that have not ended, the oldest first."""
        return [name.decode() for name in await self._client.command("ZRANGE", keys.jobs_open(), 0, -1)]

    async def close(self, run: str) -> None:
        """Record that a job has ended, so that no server looks at it."""
        await self._client.command("ZREM", keys.jobs_open(), run)

    async def is_starting(self, run: str) -> bool:
        [holder] = await read_holders(self._client, [keys.job_starter(run)])
        return holder is not None and not holder.process.is_dead()

    async def delete(self, run: str) -> None:
        """Take a run that is deleted out of the lists of runs and jobs, with its job, if it has one."""
        await self._client.pipeline(
            [
                ("UNLINK", keys.job(run), keys.job_starter(run)),
                ("ZREM", keys.jobs(), run),
                ("ZREM", keys.jobs_open(), run),
                ("SREM", keys.runs(), run),
            ]
        )


def _record(run: str, values: list[bytes | None]) -> JobRecord | None:
    created, request, held, error, starts, started = (value.decode() if value else "" for value in values)
    if not created:
        return None
    return JobRecord(
        run, int(created), json.loads(request or "{}"), held, error, int(starts or 0), int(started or 0)
    )


def name_for(url: str) -> str:
    """Return a name for a run whose first seed is *url*."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", domain_of(url)).strip("-._") or "job"
