"""The states of a run, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class RunState(StrEnum):
    """Where a run stands. It can be resumed from each of the last three."""

    CREATED = "created"
    RUNNING = "running"
    #: Nothing is fetched; what was fetched is stored.
    PAUSED = "paused"
    #: Nothing was left to do.
    FINISHED = "finished"
    #: A limit was reached, or a person stopped it; the rest is kept.
    STOPPED = "stopped"
    #: Its processes could not continue.
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        return self in (RunState.FINISHED, RunState.STOPPED, RunState.FAILED)


def runs_directory(data: Path) -> Path:
    return data / "runs"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of one run in the data directory."""

    data: Path
    run: str

    @property
    def directory(self) -> Path:
        return runs_directory(self.data) / self.run

    @property
    def pages(self) -> Path:
        return self.directory / "pages"

    @property
    def items(self) -> Path:
        return self.directory / "items"

    @property
    def merges(self) -> Path:
        """The notes of merged segments."""
        return self.directory / "merges"

    @property
    def deadletters(self) -> Path:
        return self.directory / "deadletters"

    @property
    def spills(self) -> Path:
        return self.directory / "spills"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def metrics(self) -> Path:
        return self.directory / "metrics"

    @property
    def report(self) -> Path:
        return self.directory / "report.html"
