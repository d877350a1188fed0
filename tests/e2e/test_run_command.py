"""`scrapy run`: a whole crawl by one command, to its end, interrupted, resumed, and started twice."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import EXIT_FINISHED, EXIT_NO_SEEDS, EXIT_NOTHING_FETCHED, EXIT_SHARD_TAKEN, EXIT_STORE
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.e2e.conftest import PROJECT, hold_open, summary_of
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

Scrapy = Callable[..., Any]


def run_simweb(scrapy: Scrapy, data: Path, domains: int = 6) -> Any:
    return scrapy("run", "--simweb", str(domains), "--json", "--data", str(data), DOWNLOAD_DELAY="0.1")


def test_one_command_crawls_a_simulated_web_to_the_referees_content(scrapy: Scrapy, tmp_path: Path) -> None:
    process = run_simweb(scrapy, tmp_path)

    assert process.wait() == 0, process.log
    summary = summary_of(process)
    assert summary["state"] == "finished"
    assert "no violations" in summary["referee"]
    assert len(list(read_pages(summary["pages"]))) == summary["pages_stored"] == summary["fetched"]


def test_an_interrupted_crawl_resumes_with_the_same_command(
    scrapy: Scrapy, empty_redis_url: str, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    log = tmp_path / "runs" / "simweb" / "access.jsonl"
    hold_open(empty_redis_url, "simweb", held=True)
    first = run_simweb(scrapy, tmp_path, domains=12)
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 60, "some pages are fetched")

    first.send(signal.SIGINT)
    code = first.wait()
    hold_open(empty_redis_url, "simweb", held=False)
    second = run_simweb(scrapy, tmp_path, domains=12)

    assert code == 130, first.log
    assert "Ctrl-C again stops now" in first.log
    assert summary_of(first)["leased"] == 0
    assert second.wait() == 0, second.log
    assert "no violations" in summary_of(second)["referee"]


def test_a_closed_terminal_stops_the_run_in_order(
    scrapy: Scrapy, empty_redis_url: str, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        # The tests may run under nohup.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    # With this delay it does not end before.
    settings = (f"REDIS_URL={empty_redis_url}", "CRAWL_DRAIN_SECONDS=5", "DOWNLOAD_DELAY=5")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "scrapy.cmdline", "run", "--simweb", "12", "--data", str(tmp_path)),
            *(f"--set={setting}" for setting in settings),
        ],
        cwd=PROJECT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509  # it is their terminal
    )
    os.close(theirs)
    log = tmp_path / "runs" / "simweb" / "access.jsonl"
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 20, "some pages are fetched")

    os.close(ours)
    code = process.wait(PATIENCE_S)

    assert code == 128 + signal.SIGHUP
    looked = scrapy("status", "--json", "--run", "simweb")
    assert looked.wait() == 0
    status = summary_of(looked)
    assert (status["state"], status["reason"], status["leased"]) == ("stopped", "interrupted", 0)


def test_a_new_run_does_not_show_the_pages_of_a_deleted_one(
    scrapy: Scrapy, ports: HeldPorts, tmp_path: Path
) -> None:
    old = tmp_path / "data" / "runs" / "web" / "pages" / "host-1-rab-000001.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"pages")

    process = scrapy("run", f"http://127.0.0.1:{ports.hold()}/", "--max-seconds", "1", "--shards", "1")

    assert process.wait() == EXIT_NOTHING_FETCHED, process.log
    [moved] = re.findall("pages of an earlier run web, deleted meanwhile, are now in (.*)", process.log)
    assert (Path(moved) / old.name).read_bytes() == b"pages"
    assert not old.exists()


def test_a_finished_run_says_so_and_restarted_it_is_crawled_again(
    scrapy: Scrapy, echo: Any, tmp_path: Path
) -> None:
    command = ("run", f"{echo.url}/page", "--shards", "1", "--parsers", "1")
    assert scrapy(*command).wait() == 0

    again = scrapy(*command)
    code = again.wait()
    seeds = scrapy("run", "--restart")
    restarted = scrapy(*command, "--restart")

    assert code == EXIT_FINISHED, again.log
    assert "Run 'web' has finished, and there is nothing new to fetch" in again.log
    assert "scrapy run SEEDS --run web --restart" in again.log
    # Nothing is deleted by a restart that cannot start.
    assert (seeds.wait(), "give its seeds, too" in seeds.log) == (EXIT_NO_SEEDS, True)
    assert restarted.wait() == 0, restarted.log
    [earlier] = re.findall(r"to see it: scrapy pages --run (\S+)", restarted.log)
    for run in ("web", earlier):
        assert [page["url"] for page in read_pages(tmp_path / "data" / "runs" / run)] == [f"{echo.url}/page"]
    assert len(echo.asked()) == 2


def test_flush_on_start_starts_a_run_over_unless_it_is_resumed(
    scrapy: Scrapy, echo: Any, tmp_path: Path
) -> None:
    command = ("run", "--shards", "2", "--parsers", "1", "--set=SCHEDULER_FLUSH_ON_START=1")

    for _ in range(2):
        started = scrapy(*command, f"{echo.url}/page")
        assert started.wait() == 0, started.log
    resumed = scrapy(*command)

    assert resumed.wait() == EXIT_FINISHED, resumed.log
    assert "run web begins again; what it had stored is kept in" in started.log
    assert len(echo.asked()) == 2


def test_a_running_run_is_not_started_twice(
    scrapy: Scrapy, empty_redis_url: str, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    log = tmp_path / "runs" / "simweb" / "access.jsonl"
    hold_open(empty_redis_url, "simweb", held=True)
    first = run_simweb(scrapy, tmp_path, domains=12)
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 20, "some pages are fetched")

    second = run_simweb(scrapy, tmp_path, domains=12)

    assert second.wait() == EXIT_SHARD_TAKEN, second.log
    assert "is already running in process" in second.log
    assert "Traceback" not in second.log
    hold_open(empty_redis_url, "simweb", held=False)
    assert first.wait() == 0, first.log


def test_what_a_process_says_at_error_is_shown_where_the_person_looks(
    scrapy: Scrapy, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    pages = tmp_path / "runs" / "simweb" / "pages"
    pages.parent.mkdir(parents=True)
    # Found only when it is written to.
    pages.symlink_to(tmp_path / "gone" / "pages")

    process = run_simweb(scrapy, tmp_path)

    wait_for(lambda: "parser 0: pages cannot be stored, waiting" in process.log, "it is said")
    process.send(signal.SIGINT)
    assert process.wait() == 130, process.log
    assert "pages not stored yet" in process.log


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shards", "0"], "--shards 0: must be a whole number, at least 1"),
        (["--shards", "many"], "--shards many: must be a whole number, at least 1"),
        (["--shards", "65", "http://127.0.0.1/"], "--shards 65: at most 64"),
        (["--parsers", "4..1"], "--parsers 4..1: a range starts at 1"),
        (["--max-pages", "-5"], "--max-pages -5: must be a whole number, at least 0; 0 means no limit"),
        (["--max-seconds", "1h"], "--max-seconds 1h: must be a whole number"),
        (["--max-depth", "x"], "--max-depth x: must be a whole number"),
        (["--max-pages"], "expected one argument; see: scrapy run -h"),
        (["--frobnicate"], "unknown argument '--frobnicate'; see: scrapy run -h"),
        (["--simweb", "3", "seeds.txt"], "--simweb has its own seeds and run; leave out 'seeds.txt'"),
        (["--run", "no/slash", "http://127.0.0.1/"], "'no/slash'"),
        (["broad", "seeds.txt"], "'broad' is a profile with its own seeds"),
        (["missing.toml"], "Cannot read the profile 'missing.toml'"),
        (["--join"], "There is no run 'web' here"),
        (["--join", "--restart"], "use only one of them"),
        (["-s", "CRAWL_LEASE_SECONDS=long", "http://127.0.0.1/"], "CRAWL_LEASE_SECONDS='long'"),
        (
            ["-L", "debug", "http://127.0.0.1/"],
            "LOG_LEVEL='debug' is not a log level. Choose from DEBUG, INFO",
        ),
        (
            ["http://127.0.0.1/", "-s", "CONCURRENT_REQUESTS=9999", "-s", "CRAWL_IDLE_CONNECTIONS=100000"],
            "open files",
        ),
    ],
)
def test_a_wrong_argument_is_one_clear_line(scrapy: Scrapy, arguments: list[str], words: str) -> None:
    process = scrapy("run", *arguments)

    assert process.wait() == 2, process.log
    assert words in process.log
    assert len(process.log.strip().splitlines()) == 1


def test_a_run_at_its_limit_says_so_starts_nothing_and_resumes_with_a_higher_one(
    scrapy: Scrapy, echo: Any
) -> None:
    command = ("run", f"{echo.url}/one", f"{echo.url}/two", "--shards", "1", "--parsers", "1", "--max-pages")
    first = scrapy(*command, "1")
    assert first.wait() == 0, first.log

    again = scrapy(*command, "1")
    code = again.wait()
    looked = scrapy("status", "--json")
    resumed = scrapy(*command, "2")

    assert code == 0, again.log
    assert "run web has reached its limit already; nothing is fetched\n" in again.log
    assert "stopped (max_pages) after 0.0 s with 1 URLs waiting" in again.log
    assert "with a higher --max-pages" in again.log
    assert looked.wait() == 0
    assert (summary_of(looked)["state"], summary_of(looked)["reason"]) == ("stopped", "max_pages")
    assert resumed.wait() == 0, resumed.log
    assert sorted(seen.path for seen in echo.asked()) == ["/one", "/two"]


def test_a_change_in_a_mistyped_directory_makes_nothing_there(scrapy: Scrapy, tmp_path: Path) -> None:
    process = scrapy("run", "--change", "--max-pages", "5", environment={"REDIS_URL": ""})

    assert process.wait() == 2
    assert process.log.startswith("scrapy run: There is no crawl in ")
    assert not (tmp_path / "data").exists()


def test_a_contact_that_is_none_is_not_missing_too(scrapy: Scrapy) -> None:
    process = scrapy("run", "http://a.example/", CRAWL_CONTACT="me", CRAWL_ALLOW_ADDRESSES="")

    assert process.wait() == 2
    [line] = process.log.splitlines()
    assert line.startswith("scrapy run: CRAWL_CONTACT='me' is neither a mail address nor a URL.")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("run", "http://127.0.0.1/", "--logfile", "{file}/x.log"), "Cannot write the log "),
        (("crawl", "web", "-aseeds=http://127.0.0.1/", "--logfile", "{file}/x.log"), "Cannot write the log "),
        (("serve", "--port", "0", "--data", "{file}/data"), "Cannot write to "),
    ],
)
def test_what_cannot_be_written_is_one_line_and_no_run_is_made(
    scrapy: Scrapy, tmp_path: Path, typed: Sequence[str], words: str
) -> None:
    file = tmp_path / "file"
    file.touch()

    process = scrapy(*(word.format(file=file) for word in typed), environment={"REDIS_URL": ""})

    assert process.wait() == EXIT_STORE, process.log
    [line] = process.log.splitlines()
    assert words in line
    assert not (tmp_path / "data").exists()


def test_a_run_whose_seeds_all_fail_says_why_and_ends_with_a_code_of_its_own(
    scrapy: Scrapy, ports: HeldPorts, tmp_path: Path
) -> None:
    typed = ("run", f"http://127.0.0.1:{ports.hold()}/", "--shards", "1")
    process = scrapy(*typed)

    assert process.wait() == EXIT_NOTHING_FETCHED, process.log
    said = process.log.split("No seed could be fetched:\n")[1]
    assert said.startswith("  connection_refused, 3 times: nothing listens there; check host and port\n")

    # Typed again, the network may be back.
    process = scrapy(*typed)

    assert process.wait() == EXIT_NOTHING_FETCHED, process.log
    assert "run web: domains that had failed are tried again: 1\n" in process.log
    assert "  connection_refused, 4 times: " in process.log


def test_without_seeds_nothing_is_started(scrapy: Scrapy) -> None:
    process = scrapy("run")

    assert process.wait() == EXIT_NO_SEEDS
    assert process.log == "scrapy run: Run 'web' has no seeds. Add some: scrapy run FILE-OR-URL ...\n"


def test_seeds_come_from_standard_input_and_the_limit_of_a_domain_is_kept(
    crew_of: Callable[..., Any],
) -> None:
    crew = crew_of(WorldSpec.calm(domains=3, pages_per_domain=10, size_spread=0.0))
    seeds = "".join(f"{url}\n" for url in crew.simweb.seeds(3))
    settings = [f"--set={name}={value}" for name, value in crew.settings.items()]
    limits = ["--max-domain-pages", "4", "--max-depth", "3", "--shards", "1", "--parsers", "0"]

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "scrapy.cmdline",
            "run",
            "-",
            "--json",
            *limits,
            f"--data={crew.data}",
            *settings,
        ],
        input=seeds,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    summary = json.loads(line)
    assert summary["state"] == "finished"
    assert summary["pages_fetched"] == summary["pages_stored"] == 12
    assert summary["data"] == str(crew.data / "runs" / "web")


def test_a_profile_is_a_whole_crawl_and_options_go_over_it(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(WorldSpec.calm(domains=3, pages_per_domain=10, size_spread=0.0))
    profile = crew.directory / "small.toml"
    seeds = json.dumps(crew.simweb.seeds(3))
    profile.write_text(f'mode = "single"\nrun = "mine"\nseeds = {seeds}\n[limits]\npages = 2\n')

    process = crew.scrapy("run", str(profile), "--max-pages", "5", "--json", name="run")

    assert process.wait() == 0, process.log
    summary = summary_of(process)
    assert (summary["run"], summary["reason"]) == ("mine", "max_pages")
    assert summary["pages_fetched"] == summary["pages_stored"] == 5
    assert sorted(path.name for path in (crew.data / "runs" / "mine" / "logs").iterdir()) == [
        "shard-0.log",
        "supervisor.log",
    ]
