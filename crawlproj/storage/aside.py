"""What deleted runs leave on disk: it is kept under another name, so that no new run shows it."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from crawlproj.model.run import RunPaths, runs_directory
from crawlproj.model.segment_name import is_foreign
from crawlproj.storage.objects import StorePath
from crawlproj.storage.places import objects_of, pointer_of, store_of
from crawlproj.storage.segments import foreign

#: Between the name of a run and the time at which it was deleted.
_DELETED = ".deleted-"
#: The name with both must be a valid name for a run, since `scrapy pages --run` shows it: at most 64.
_MOST_NAME = 36
#: What only its own processes need.
_WORKING_FILES = (
    "logs",
    "metrics",
    "spills",
    "supervisor.lock",
    "world.json",
    "access.jsonl",
    "seeds.txt",
    "exports",
    "gathering",
    "merged",
)


def set_aside(paths: RunPaths) -> RunPaths | None:
    """Move what a deleted run has stored, and its dead letters; returns where it is now, None without any."""
    stored = (paths.pages, paths.items, paths.merges, paths.deadletters)
    kept = [place for place in stored if place.is_dir() and any(place.iterdir())]
    store = store_of(paths)
    objects = list(objects_of(store)) if store else []
    beside = [path for path in (paths.report, pointer_of(paths)) if path.exists()]
    return _move([*kept, *(beside if kept or objects else ())], paths, objects)


def set_aside_others(paths: RunPaths, run_id: int) -> RunPaths | None:
    """Move pages and items of all but the run with this id: they are of deleted runs of the same name."""
    store = store_of(paths)
    objects = [path for path in objects_of(store) if is_foreign(path.name, run_id)] if store else []
    places = (paths.pages, paths.items, paths.merges)
    target = _move([file for place in places for file in foreign(place, run_id)], paths, objects)
    if target is not None and objects:
        # The run that stays needs it, too.
        shutil.copy2(pointer_of(paths), pointer_of(target))
    return target


def remove_working_files(paths: RunPaths) -> None:
    """Remove what a deleted run leaves besides its pages, and its directory if nothing else is there."""
    _remove(paths.directory / name for name in _WORKING_FILES)
    _remove_if_empty(paths.directory)


def remove_stored(paths: RunPaths) -> None:
    """Remove the pages, items, dead letters and report of a run."""
    store = store_of(paths)
    for path in objects_of(store) if store else ():
        path.unlink()
    _remove([paths.pages, paths.items, paths.merges, paths.deadletters, paths.report, pointer_of(paths)])
    _remove_if_empty(paths.directory)


def leftovers(data: Path, run: str) -> list[RunPaths]:
    """Return what is on disk under the name of *run*: its own directory, and those set aside."""
    found = [runs_directory(data) / run, *sorted(runs_directory(data).glob(f"{_stem(run)}{_DELETED}*"))]
    return [RunPaths(data, directory.name) for directory in found if directory.is_dir()]


def _stem(run: str) -> str:
    if len(run) <= _MOST_NAME:
        return run
    return f"{run[: _MOST_NAME - 9]}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"


def _move(files: Sequence[Path], paths: RunPaths, objects: Sequence[StorePath]) -> RunPaths | None:
    if not files and not objects:
        return None
    name = f"{_stem(paths.run)}{_DELETED}{time.strftime('%Y%m%d-%H%M%S')}"
    taken = sum(1 for _ in runs_directory(paths.data).glob(f"{name}*"))
    target = RunPaths(paths.data, f"{name}-{taken + 1}" if taken else name)
    target.directory.mkdir(parents=True, exist_ok=True)
    # First, as long as the run still says in which store they are.
    for path in objects:
        inside = path.key.removeprefix(f"runs/{paths.run}/")
        path.rename(path.store.path(f"runs/{target.run}/{inside}"))
    for file in files:
        place = target.directory / file.relative_to(paths.directory)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.rename(place)
    return target


def _remove(places: Iterable[Path]) -> None:
    for place in places:
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _remove_if_empty(directory: Path) -> None:
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
