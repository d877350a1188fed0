"""The list of jobs: every run in this Redis, and what waits to become one; the newest first."""

from __future__ import annotations

from crawlproj.api.problems import bad_field
from crawlproj.api.view import STATES
from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.jobs import JobRecord, JobRecords


async def list_jobs(
    client: RedisClient, records: JobRecords, state: str | None, limit: int, cursor: str
) -> tuple[list[str], str | None]:
    """Return *limit* jobs in this state, those after *cursor*, and the cursor for the next; None: no more."""
    names = sorted({*await Run.names(client), *await records.names()})
    found = await records.find_all(names)
    runs = await client.pipeline([("HMGET", keys.run_record(name), "created_ms", "state") for name in names])
    lines = []
    for name, record, (created, run_state) in zip(names, found, runs, strict=True):
        if record is None and created is None:
            continue
        created_ms = record.created_ms if record else int(created)
        if state is None or _state(record, run_state) == state:
            lines.append((-created_ms, name))
    lines.sort()
    if cursor:
        after = _decode(cursor)
        lines = [line for line in lines if line > after]
    following = lines[limit - 1] if len(lines) > limit else None
    return [name for _, name in lines[:limit]], f"{-following[0]}:{following[1]}" if following else None


def _state(record: JobRecord | None, run_state: bytes | None) -> str:
    """Return the state, as the view of the job has it."""
    state = STATES[RunState(run_state.decode())] if run_state else "pending"
    if record is not None and record.held and state in ("pending", "processing"):
        return record.held
    if record is not None and record.error and state in ("pending", "processing"):
        return "failed"
    return state


def _decode(cursor: str) -> tuple[int, str]:
    created, _, name = cursor.partition(":")
    # Not `isdigit`, which is true of `²`.
    if not created.isdecimal() or len(created) > 15 or not name:
        raise bad_field("cursor", cursor, f"cursor={cursor!r} is not one of ours.", "Leave it out.")
    return -int(created), name
