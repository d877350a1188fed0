"""Small segments of a crawl at work are merged: by hand, killed at every step, and by `scrapy run` itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.simweb.spec import WorldSpec
from tests.e2e.conftest import Crew
from tests.e2e.crashes import Case
from tests.e2e.dying import killed_at

pytestmark = pytest.mark.e2e

WORLD = WorldSpec.calm(seed=8, domains=10, pages_per_domain=8, size_spread=0.0, latency_ms=5)
#: A page each.
SMALL = {"CRAWL_SEGMENT_PAGES": "1", "CRAWL_PARSE_BATCH": "1", "PAGE_STORE": "parquet,jsonl"}
MERGER = """
    merge_built merge_noted segments_merged merge_published replaced_moved replaced_dropped
"""
CASES = {"merger": Case(MERGER, "compact --bytes=1e6 --keep=0")}


def merged_in(crew: Crew) -> list[str]:
    pages = crew.data / "runs/web/pages"
    return sorted(path.name for path in pages.glob("merged-*.parquet"))


def test_a_merger_killed_at_every_point_beside_a_crawl_loses_nothing_and_doubles_nothing(
    crew_of: Callable[..., Crew], empty_redis_url: str, tmp_path: Path
) -> None:
    crew = crew_of(WORLD, **SMALL, DOWNLOAD_DELAY="0.3", REDIS_URL=empty_redis_url)
    crawl = crew.scrapy("run", str(crew.seeds_file), "--shards=1", "--parsers=1", name="run")
    crew.wait_until(lambda: crew.status()["pages_stored"] >= 20, "there are enough segments")

    crew.before = killed_at(CASES["merger"].plan, tmp_path / "deaths")
    dying = crew.scrapy(*CASES["merger"].command.split(), name="dying")
    crew.before = ()
    code = dying.wait()
    assert (code, (tmp_path / "deaths").read_text().split()) == (0, MERGER.split()), dying.log
    assert len(merged_in(crew)) == 1

    assert crawl.wait() == 0, crawl.log
    crew.assert_content()
    rest = crew.scrapy("compact", "--keep=0")
    assert rest.wait() == 0, rest.log
    crew.assert_content()
    again = crew.scrapy("compact")
    assert again.wait() == 0, again.log
    assert again.log == "Run web has nothing to merge.\n"
    checked = crew.scrapy("pages", "--check")
    assert checked.wait() == 0, checked.log
    assert "3 files match what Redis recorded for 1 segments." in checked.log


def test_a_run_merges_its_segments_if_a_setting_says_so(
    crew_of: Callable[..., Crew], empty_redis_url: str
) -> None:
    crew = crew_of(WORLD, **SMALL, REDIS_URL=empty_redis_url, CRAWL_COMPACT_BYTES="100000000")

    crawl = crew.scrapy("run", str(crew.seeds_file), "--shards=1", "--parsers=1", name="run")

    assert crawl.wait() == 0, crawl.log
    crew.assert_content()
    assert "merging small segments" in crawl.log
    names = {path.name.partition("-")[0] for path in (crew.data / "runs/web/pages").iterdir()}
    assert (names, len(merged_in(crew))) == ({"merged"}, 1)
    log = (crew.data / "runs/web/logs/merger.out").read_text()
    assert "pages are 1 now" in log


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--bytes=12",), "--bytes 12: must be at least 1,000,000, such as 256e6."),
        (("--keep=-1",), "--keep -1: must be 0 or more seconds, such as 3600."),
        (("--run=nosuch",), "There is no run 'nosuch'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    scrapy: Callable[..., object], empty_redis_url: str, arguments: tuple[str, ...], wrong: str
) -> None:
    command = scrapy("compact", *arguments, REDIS_URL=empty_redis_url)

    assert command.wait() == 2
    assert wrong in command.log
