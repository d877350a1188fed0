"""What is wrong with a crawl, as programs get it: field, value, what is wrong, what would be right."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from crawlproj import checks
from crawlproj.config import load_config
from crawlproj.errors import EXIT_NO_SEEDS, EXIT_REDIS, EXIT_STORE, EXIT_USAGE, CannotStart, Problem
from crawlproj.frontier.seeds import SeedSource
from tests.ports import HeldPorts

CONTACT = {"CRAWL_CONTACT": "me@example.org"}


def seeds(*names: str, skip_invalid: bool = False, **settings: Any) -> list[Problem]:
    sources = [SeedSource(name) for name in names]
    return checks.seed_problems(load_config(CONTACT | settings), sources, skip_invalid=skip_invalid)


def disk(data: Path, **options: Any) -> list[Problem]:
    config = load_config({"CRAWL_DATA": str(data), "REDIS_URL": "redis://localhost"})
    return list(checks.disk_problems(config, "news", **options))


def test_a_problem_has_field_value_and_remedy() -> None:
    [problem] = checks.fetch_problems(load_config({"CRAWL_FIELDS": {"price": ".price"}} | CONTACT))

    assert (problem.field, problem.value) == ("CRAWL_FIELDS['price']", ".price")
    assert problem.remedy == "Write 'css:.price::text' or 'xpath://h1/text()'."
    assert str(problem) == f"{problem.wrong} {problem.remedy}"


def test_a_contact_is_needed_unless_only_some_addresses_are_crawled() -> None:
    [problem] = checks.fetch_problems(load_config({}))

    assert problem.field == "CRAWL_CONTACT"
    assert list(checks.fetch_problems(load_config({"CRAWL_ALLOW_ADDRESSES": "10.0.0.0/8"}))) == []
    # Public all the same.
    [public] = seeds(
        "http://10.0.0.1/", "http://8.8.8.8/", CRAWL_CONTACT=None, CRAWL_ALLOW_ADDRESSES="10.0.0.0/8"
    )
    assert (public.field, public.wrong) == (
        "CRAWL_CONTACT",
        "http://8.8.8.8/ is public, and CRAWL_CONTACT is not set.",
    )


def test_a_seed_that_is_refused_for_its_private_address_asks_for_no_contact() -> None:
    def fields(*names: str) -> list[str]:
        problems = checks.crawl_problems(load_config({}), [SeedSource(name) for name in names])
        return [problem.field for problem in problems]

    assert fields("http://localhost:8000/") == ["seeds"]
    assert fields("http://localhost:8000/", "http://10.0.0.1/") == ["seeds", "seeds"]
    assert fields("http://localhost:8000/", "https://a.example/") == ["CRAWL_CONTACT", "seeds"]
    assert fields("no url") == ["CRAWL_CONTACT", "seeds"]


def test_an_unreadable_exclusion_file_is_one_problem(tmp_path: Path) -> None:
    config = load_config({"CRAWL_EXCLUDE_FILE": str(tmp_path / "none")} | CONTACT)

    [problem] = checks.fetch_problems(config)

    assert "CRAWL_EXCLUDE_FILE: cannot read" in str(problem)
    assert checks.seed_problems(config, [SeedSource("example.org")]) == []


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        ("ftp://a.example/", "is not http or https"),
        ("http://10.0.0.1/", "10.0.0.1 is private and not crawled"),
        ("http://[::1]/", "::1 is loopback"),
        ("http://169.254.169.254/", "a metadata service"),
        ("localhost", "127.0.0.1 is loopback"),
        ("http://a.localhost:8000/", "127.0.0.1 is loopback"),
        ("http://8.8.8.8:22/", "Port 22 of 8.8.8.8"),
        ("example.org:25", "port 25 is not for web pages"),
        ("https://a.example/private", "is excluded by CRAWL_EXCLUDE"),
    ],
)
def test_a_seed_that_would_never_be_fetched_is_refused(seed: str, words: str) -> None:
    [problem] = seeds(seed, "https://fine.example/", CRAWL_EXCLUDE="/private")

    assert problem.exit_code == EXIT_USAGE
    assert words in str(problem)


@pytest.mark.parametrize(
    "seed", ["https://a.example/", "example.org:8080", "http://8.8.8.8/", "http://127.0.0.1:22/"]
)
def test_a_seed_that_may_be_fetched_passes(seed: str) -> None:
    assert seeds(seed, CRAWL_ALLOW_ADDRESSES="127.0.0.0/8") == []


def test_without_a_valid_seed_the_code_is_that_of_no_seeds(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("no url\n")
    (tmp_path / "mixed.txt").write_text("no url\nhttp://a.example/\n")

    assert {problem.exit_code for problem in seeds(str(tmp_path / "bad.txt"))} == {EXIT_NO_SEEDS}
    assert {problem.exit_code for problem in seeds(str(tmp_path / "mixed.txt"))} == {EXIT_USAGE}


def test_invalid_seeds_can_be_skipped_but_not_a_file_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mixed.txt").write_text("no url\nhttp://a.example/\n")
    mixed, missing = str(tmp_path / "mixed.txt"), str(tmp_path / "missing.txt")

    assert seeds(mixed, skip_invalid=True) == []
    [problem] = seeds(mixed, missing, skip_invalid=True)
    assert problem.value == missing


def test_the_data_directory_need_not_exist_and_is_not_created(tmp_path: Path) -> None:
    assert disk(tmp_path / "a" / "b") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_the_way", ["data", "data/runs", "data/runs/news/pages", "data/runs/news/logs"])
def test_a_file_where_a_directory_should_be_is_named(tmp_path: Path, in_the_way: str) -> None:
    file = tmp_path / in_the_way
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()

    [problem] = disk(tmp_path / "data")

    assert (problem.field, problem.exit_code) == ("CRAWL_DATA", EXIT_STORE)
    assert f"{file} is not a directory. Move it away, or" in str(problem)


def test_a_disk_without_space_is_named_with_what_it_has(tmp_path: Path) -> None:
    [problem] = disk(tmp_path, least_bytes=10**18)

    assert "MB left, and 1,000,000,000,000 MB are needed" in problem.wrong


@pytest.mark.parametrize("mode", [0o555, 0o444, 0])
def test_a_directory_of_others_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)

    with ProcessPoolExecutor(1, get_context("fork"), _become_nobody) as nobody:
        [problem] = nobody.submit(disk, tmp_path / "data" / "here").result()

    tmp_path.chmod(0o700)
    assert "is not writable for this user, or on a read-only disk" in problem.wrong


def test_a_log_that_cannot_be_written_is_found_before_the_run_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    problem = checks.log_problem(str(tmp_path / "file" / "logs" / "x.log"))

    assert problem is not None
    assert (problem.field, problem.exit_code) == ("LOG_FILE", EXIT_STORE)
    assert f"{tmp_path}/file is not a directory. Choose another file with LOG_FILE." in str(problem)
    assert checks.log_problem(str(tmp_path / "new" / "x.log")) is None
    assert checks.log_problem(None) is None


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setuid(65534)


def test_an_address_that_is_not_ours_cannot_serve_metrics(ports: HeldPorts) -> None:
    def problems(host: str, port: int) -> list[str]:
        config = load_config({"CRAWL_METRICS_HOST": host, "CRAWL_METRICS_PORT": port})
        return [problem.field for problem in checks.port_problems(config)]

    assert problems("203.0.113.1", 9100) == ["CRAWL_METRICS_HOST"]
    # Taken: there are spare ones.
    assert problems("127.0.0.1", ports.hold()) == []
    assert problems("203.0.113.1", 0) == []


async def test_a_redis_that_does_not_answer_is_a_problem_with_its_own_code(ports: HeldPorts) -> None:
    problem = await checks.redis_problem(load_config({"REDIS_URL": f"redis://127.0.0.1:{ports.hold()}/0"}))

    assert problem is not None
    assert (problem.field, problem.value, problem.exit_code) == ("REDIS_URL", "", EXIT_REDIS)
    # An embedded one would have to be started.
    assert await checks.redis_problem(load_config({})) is None


def test_the_exit_code_is_that_of_all_problems_or_that_of_usage() -> None:
    store, redis = Problem("a", "", "a.", "", EXIT_STORE), Problem("b", "", "b.", "", EXIT_REDIS)

    assert CannotStart([store, store]).exit_code == EXIT_STORE
    assert CannotStart([store, redis]).exit_code == EXIT_USAGE
