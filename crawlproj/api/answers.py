"""What the API answers, for its description. A test checks the answers against it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["pending", "processing", "paused", "completed", "failed", "stopped"]
Count = Annotated[int, Field(ge=0)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FieldProblem(_Answer):
    field: str
    value: str
    problem: str
    remedy: str


class ProblemAnswer(_Answer):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class Trouble(_Answer):
    what: str
    remedy: str
    #: `note`: worth knowing, but nothing has to be done.
    level: Literal["wrong", "note"] = "wrong"


class Limits(_Answer):
    max_pages: Count
    max_seconds: float
    max_bytes: Count


class Process(_Answer):
    kind: str
    name: str
    host: str
    pid: int
    age_seconds: Count
    silent_seconds: float
    pages_per_s: float
    cpu: float | None
    memory_bytes: Count
    open_files: Count
    disk_free_bytes: int | None
    last_error: str


class Worker(Process):
    job: str


class JobSummary(_Answer):
    id: str
    state: State
    reason: str
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    mode: Literal["sharded", "single"]
    #: Whose pages they are: `web`, or a spider of your own; empty before it has begun.
    spider: str
    shards: int
    parsers: str
    #: All URLs known.
    total: int
    completed: int
    failed: int
    failed_by_reason: dict[str, int]
    skipped: int
    skipped_by_reason: dict[str, int]
    remaining: int
    waiting: int
    leased: int
    pages_stored: int
    pages_cut: int
    pages_queued: int
    pages_being_parsed: int
    links_spilled: int
    bytes: int
    dead_letters: int
    pages_per_second: float
    parsed_per_second: float
    seconds_left: int | None
    percent: float | None
    ran_seconds: float
    limits: Limits
    parked_domains: int
    trapped: int
    redis_full: str
    problems: list[Trouble]
    pages_path: str


class Job(JobSummary):
    rules: dict[str, Any]
    processes: list[Process]
    links: dict[str, str]


class HistoryPoint(_Answer):
    at: datetime
    #: Pages until then, since the job began.
    fetched: Count
    parsed: Count


class JobHistory(_Answer):
    #: By the same clock as the points.
    now: datetime
    points: list[HistoryPoint]


class JobList(_Answer):
    jobs: list[JobSummary]
    next: str | None


class SeedsAdded(_Answer):
    new: int
    known: int
    invalid: list[FieldProblem]


class Released(_Answer):
    domains: int
    urls: int


class Domain(_Answer):
    domain: str
    fetched: int
    admitted: int
    delay_ms: int
    failures: int
    bytes: int
    parked: str
    #: `allowed`, `partly`, `refused`, `unreachable`, or empty: not asked yet, or forgotten.
    robots: Literal["allowed", "partly", "refused", "unreachable", ""]


class DomainList(_Answer):
    domains: list[Domain]
    #: There are more than were looked at.
    sample: bool
    next: str | None


class PageLine(_Answer):
    id: str
    url: str
    domain: str
    status: int
    title: str | None
    fetched_at: datetime
    language: str | None
    bytes: int
    error: str | None
    text_chars: int
    snippet: str


class PageList(_Answer):
    pages: list[PageLine]
    next: str | None
    searched_pages: int
    total_pages: int


class Page(BaseModel):
    """All columns of a stored page; docs/storage.md explains them."""

    model_config = ConfigDict(extra="allow")
    id: str
    url: str
    domain: str
    status: int
    fetched_at: datetime
    title: str | None
    text: str | None


class ExportLink(_Answer):
    """A link that needs no token, for a minute and once."""

    url: str
    expires_at: datetime
    bytes: Count


class DeadLetter(_Answer):
    page: str
    url: str
    error: str
    parser: str
    at: datetime


class DeadLetterList(_Answer):
    deadletters: list[DeadLetter]
    total: int
    next: str | None


class Replayed(_Answer):
    replayed: int


class Health(_Answer):
    status: Literal["ok", "unwell"]
    redis: str
    #: The server that starts the jobs of this data directory.
    leader: str | None
    disk_free_bytes: int
    jobs_running: int
    jobs_waiting: int
    last_progress_at: datetime | None
    problems: list[Trouble]


class WorkerList(_Answer):
    workers: list[Worker]
