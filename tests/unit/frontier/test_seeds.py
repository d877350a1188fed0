"""Seeds: good lines become candidates, bad ones complaints that a person can act on."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.errors import NoSeeds, Problem
from crawlproj.frontier.admission import AdmissionRules
from crawlproj.frontier.seeds import SeedSource, judge_seeds, parse_seeds, read_seeds
from crawlproj.model.records import Candidate


def parsed(*lines: str) -> list[str]:
    return [
        f"line {number}: {seed}" if isinstance(seed, str) else seed.url
        for number, _, seed in parse_seeds(enumerate(lines, 1))
    ]


def test_urls_and_bare_domains_become_candidates() -> None:
    assert parsed("http://A.test/x#y\n", "  example.org  ", "example.org/page", "example.org:8080/x") == [
        "http://a.test/x",
        "https://example.org/",
        "https://example.org/page",
        "https://example.org:8080/x",
    ]


def test_blank_lines_comments_and_a_byte_order_mark_are_skipped() -> None:
    assert parsed("\ufeff# seeds", "", "   ", "# http://a.test/", "\ufeffhttp://b.test/\r\n") == [
        "http://b.test/"
    ]


def test_a_comment_after_a_seed_is_no_part_of_its_url() -> None:
    assert parsed("http://a.test/x # the best", "b.example.org\t#second", "http://c.test/#top") == [
        "http://a.test/x",
        "https://b.example.org/",
        "http://c.test/",
    ]


@pytest.mark.parametrize(
    "garbage", ["garbage", "ftp://a.test/", "http://", "mailto:a@b.org", "\x00\x01", "<html>", "http://a b/"]
)
def test_an_invalid_line_is_reported_with_its_number_and_the_rest_is_read(garbage: str) -> None:
    first, complaint, last = parsed("http://a.test/", garbage, "http://b.test/")

    assert (first, last) == ("http://a.test/", "http://b.test/")
    assert complaint.startswith("line 2: ")
    assert repr(garbage.strip()) in complaint


def test_a_file_is_read_with_line_numbers_whatever_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_bytes(b"http://a.test/\n\xff\xfe\n\nhttp://b.test/")

    seeds = list(judge_seeds(SeedSource(str(file))))

    assert [seed.url for seed in seeds if isinstance(seed, Candidate)] == ["http://a.test/", "http://b.test/"]
    assert [seed.field for seed in seeds if isinstance(seed, Problem)] == [f"{file}, line 2"]


def test_an_empty_file_has_no_seeds_and_no_errors(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    assert list(parse_seeds(read_seeds(tmp_path / "empty"))) == []


@pytest.mark.parametrize("name", ["missing.txt", ""])
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoSeeds, match=r"Cannot read the seeds file .*: (No such file|Is a directory)"):
        list(read_seeds(tmp_path / name))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("http://a.test/\n".encode("utf-16"), "is in UTF-16; save it as UTF-8"),
        (b"\x1f\x8b\x08\x00http://a.test/", "is not a text file; write one URL or domain per line"),
        (b"\xef\xbb\xbf\r\n<!DOCTYPE html>", "is HTML or XML; write one URL or domain per line"),
        (b"<?xml version='1.0'?><urlset>", "is HTML or XML"),
    ],
)
def test_a_file_that_is_no_list_is_one_problem(
    content: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seeds.txt").write_bytes(content)
    typed = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))  # type: ignore[type-var]  # a raw file
    monkeypatch.setattr("sys.stdin", typed)

    for name in (str(tmp_path / "seeds.txt"), "-"):
        with pytest.raises(NoSeeds, match=words):
            list(SeedSource(name).lines())


def test_closed_standard_input_has_no_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)

    assert list(SeedSource("-").lines()) == []


def test_what_a_person_names_is_a_url_a_domain_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("http://in.test/\n"))
    (tmp_path / "example.com").write_text("http://file.test/\n")

    assert list(SeedSource("http://a.test/").lines()) == [(1, "http://a.test/")]
    assert list(SeedSource("example.org").lines()) == [(1, "example.org")]
    assert list(SeedSource("example.com").lines()) == [(1, "http://file.test/\n")]
    with pytest.raises(NoSeeds, match=r"'seeds\.txt': No such file or directory\.$"):
        list(SeedSource("seeds.txt").lines())
    standard_input = SeedSource("-")
    # Again, when Redis has lost the seeds.
    assert list(standard_input.lines()) == list(standard_input.lines()) == [(1, "http://in.test/\n")]


def test_a_pipe_can_be_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=["http://a.test/\n"])
    writer.start()

    source = SeedSource(str(pipe))

    assert list(source.lines()) == list(source.lines()) == [(1, "http://a.test/\n")]
    writer.join()


@pytest.mark.parametrize(
    ("named", "url"),
    [
        ("example.org", "https://example.org/"),
        ("example.org/docs/", "https://example.org/docs/"),
        ("example.org:8080/x", "https://example.org:8080/x"),
        ("localhost:8000", "http://localhost:8000/"),
        ("127.0.0.1:8000/x", "http://127.0.0.1:8000/x"),
    ],
)
def test_a_host_is_not_taken_for_a_file(named: str, url: str) -> None:
    [seed] = judge_seeds(SeedSource(named))

    assert isinstance(seed, Candidate)
    assert seed.url == url


@pytest.mark.parametrize("name", ["wiki", "wiki:8080", "wiki.corp/start", "example.orgg"])
def test_what_may_be_a_host_is_explained(name: str) -> None:
    with pytest.raises(NoSeeds, match=rf"If it is a host and not a file, write http://{name}$"):
        list(SeedSource(name).lines())


def test_seeds_are_cleaned_and_judged_by_the_rules_of_the_run() -> None:
    rules = AdmissionRules(load_config({"CRAWL_EXCLUDE": "/private", "CRAWL_MAX_URL": 64}))
    lines = ["http://a.test/?utm_source=x", "http://a.test/private/x", "http://a.test/" + "x" * 60]

    (_, _, seed), (_, _, excluded), (_, _, long) = parse_seeds(enumerate(lines, 1), rules)

    assert isinstance(seed, Candidate)
    assert seed.url == "http://a.test/"
    assert excluded == (
        "'http://a.test/private/x' is excluded by CRAWL_EXCLUDE or CRAWL_EXCLUDE_FILE; "
        "change these, or leave it out"
    )
    assert isinstance(long, str)
    assert long.startswith("'http://a.test/xxx")
    assert "CRAWL_MAX_URL" in long
