"""Where the files of a run are: in data directories, in an object store, or in both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crawlproj.model.run import RunPaths
from crawlproj.storage.objects import Place, StorePath, store_at

#: The file in the directory of a run that names its store, for commands that ask no Redis.
_POINTER = "store"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The files of one run in a data directory or store, for readers; see `RunPaths`."""

    data: Place
    run: str

    @property
    def directory(self) -> Place:
        return self.data / "runs" / self.run

    @property
    def pages(self) -> Place:
        return self.directory / "pages"

    @property
    def items(self) -> Place:
        return self.directory / "items"


def remember_store(directory: Path, address: str) -> None:
    """Note that the run with this *directory* has its pages in the store at *address*."""
    pointer = directory / _POINTER
    if not pointer.exists():
        # Twice the same, if two parsers do it at once.
        pointer.write_text(address + "\n", encoding="utf-8")


def pointer_of(paths: RunPaths) -> Path:
    return paths.directory / _POINTER


def store_of(paths: RunPaths) -> RunPlace | None:
    """Return where the run is in its object store; None without one."""
    try:
        address = pointer_of(paths).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    return RunPlace(store_at(address).path(), paths.run)


def places_of(paths: RunPaths) -> list[RunPlace]:
    """Return where to look for the pages of a run: its store, if it has one, and the disk."""
    store = store_of(paths)
    return [*([store] if store else []), RunPlace(paths.data, paths.run)]


def objects_of(place: RunPlace) -> Iterator[StorePath]:
    """Yield all objects of a run in a store, also those that no reader sees."""
    for outer in ("", "open", "withdrawn", "merged", "merged/building"):
        for folder in ("pages", "items"):
            yield from _objects_in(place.directory / outer / folder if outer else place.directory / folder)
    yield from _objects_in(place.directory / "merges")


def _objects_in(folder: Place) -> Iterator[StorePath]:
    for path in folder.iterdir():
        assert isinstance(path, StorePath)
        yield path
