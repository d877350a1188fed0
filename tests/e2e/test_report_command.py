"""`scrapy report`, typed as a person would: on files alone, and where the Redis of the run is there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scrapy.cmdline import execute

from crawlproj.errors import EXIT_OK, EXIT_USAGE
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, RunState
from tests.conftest import RedisServer
from tests.unit.report.conftest import a_row, write_pages

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Typed]:
    """Runs `scrapy report` in this process: exit code, output, errors."""
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "crawlproj.settings")
    monkeypatch.delenv("REDIS_URL", raising=False)

    def run(*typed: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            execute(["scrapy", "report", *typed, "--data", str(tmp_path)])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return int(left.value.code or 0), out, err

    before = dict(os.environ)
    yield run
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The directory of a run `web` with three pages."""
    write_pages(tmp_path / "runs" / "web" / "pages", [a_row(n) for n in range(3)])
    return tmp_path / "runs" / "web"


def test_the_report_stands_beside_the_pages_and_the_command_says_where(stored: Path, report: Typed) -> None:
    code, out, err = report()

    assert (code, err) == (EXIT_OK, "")
    assert out == f"{stored / 'report.html'}: 3 pages of run web\n"
    assert "Crawl report: web" in (stored / "report.html").read_text("utf-8")


def test_no_redis_is_started_for_pages_that_came_without(stored: Path, report: Typed) -> None:
    report()

    assert not (stored.parent.parent / "redis").exists()


def test_the_report_goes_where_it_is_wanted(stored: Path, report: Typed, tmp_path: Path) -> None:
    report("-o", str(tmp_path / "mine.html"))

    assert (tmp_path / "mine.html").read_text("utf-8").startswith("<!doctype html>")
    assert not (stored / "report.html").exists()


def test_without_redis_that_is_said_and_the_report_written(stored: Path, report: Typed) -> None:
    code, out, err = report("--set=REDIS_URL=redis://127.0.0.1:1/0")

    assert code == EXIT_OK
    assert "3 pages" in out
    assert err.startswith("scrapy report: no figures from Redis, nor whether other machines hold pages. ")
    assert err.count("\n") == 1


def test_what_redis_knows_of_the_run_is_in_the_report(
    stored: Path, report: Typed, redis_server_factory: Callable[..., RedisServer], tmp_path: Path
) -> None:
    url = redis_server_factory().url

    async def stop_a_run() -> None:
        client = await RedisClient.open(url=url, data_dir=tmp_path)
        run = await Run.open(client, "web", partitions=2)
        await run.change(RunState.STOPPED, "max_pages")
        await client.close()

    asyncio.run(stop_a_run())

    code, _, err = report(f"--set=REDIS_URL={url}")

    page = (stored / "report.html").read_text("utf-8")
    assert (code, err) == (EXIT_OK, "")
    assert "UTC, stopped</p>" in page
    assert "Reason of the end: max_pages" in page


def test_an_unknown_run_is_refused_with_those_there_are(stored: Path, report: Typed) -> None:
    code, _, err = report("--run", "nwes")

    assert code == EXIT_USAGE
    assert "There is no run 'nwes'" in err
    assert "runs with pages: web." in err


def test_a_run_without_pages_has_its_own_message(stored: Path, report: Typed) -> None:
    (stored.parent / "young" / "logs").mkdir(parents=True)

    code, _, err = report("--run", "young")

    assert code == EXIT_USAGE
    assert "Run 'young' has no pages" in err


def test_a_file_that_cannot_be_written_is_reported(stored: Path, report: Typed, tmp_path: Path) -> None:
    code, _, err = report("-o", str(tmp_path / "none" / "x.html"))

    assert code == EXIT_USAGE
    assert "No such file or directory. Choose another file with -o FILE." in err
