"""Pages of a deleted run are kept, and a new run of the same name does not show them."""

from __future__ import annotations

from pathlib import Path

from crawlproj.model.run import RunPaths
from crawlproj.storage.aside import leftovers, set_aside, set_aside_others


def test_pages_of_another_run_are_moved_and_those_of_this_one_stay(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "news")
    paths.pages.mkdir(parents=True)
    names = ("host-1-a-rff-000001.parquet", "host-1-a-rab-000001.parquet", "host-1-a-rab-000002.warc.gz")
    others = ("host-2-000001.parquet", "host-3-rab-000003.parquet.part")
    for name in (*names, *others):
        (paths.pages / name).touch()

    kept = set_aside_others(paths, 0xFF)

    assert kept is not None
    assert {path.name for path in kept.pages.iterdir()} == set(names[1:])
    # Not committed, or of an earlier release.
    assert {path.name for path in paths.pages.iterdir()} == {names[0], *others}
    assert set_aside_others(paths, 0xFF) is None


def test_runs_deleted_in_the_same_second_are_kept_apart(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "n" * 64)
    kept = []
    for _ in range(3):
        paths.pages.mkdir(parents=True)
        (paths.pages / "a.parquet").touch()
        kept.append(set_aside(paths))

    assert len({place.run for place in kept if place}) == 3
    assert all(len(place.run) <= 64 for place in kept if place)
    assert len(leftovers(tmp_path, "n" * 64)) == 4
    assert set_aside(RunPaths(tmp_path, "never")) is None
