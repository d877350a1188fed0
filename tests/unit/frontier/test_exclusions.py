from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from crawlproj.errors import BadSetting
from crawlproj.frontier import exclusions as exclusions_module
from crawlproj.frontier.exclusions import Exclusions

LINES = """\
# who asked us to stay away
example.org
Bücher.test      # by mail
www.paths.test/private
www.paths.test/%7euser/ä
www.paths.test/search?
192.0.2.7
[2001:db8::1]

re:/calendar/[0-9]{4}
re:(?i)\\?print=
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "exclusions.txt"
    file.write_text(LINES, encoding="utf-8")
    return file


def rewrite(file: Path, text: str) -> None:
    """Write as an editor does, at another time than before."""
    stamp_ns = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text, encoding="utf-8")
    os.utime(file, ns=(stamp_ns + 10**9, stamp_ns + 10**9))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/",
        "http://a.b.example.org:8080/x",
        "https://xn--bcher-kva.test/x",
        "https://www.paths.test/private",
        "https://www.paths.test/private-too/x?y",
        "http://www.paths.test:81/private/x",
        "https://www.paths.test/~user/%C3%A4/x",
        "https://www.paths.test/search?q=1",
        "http://192.0.2.7/x",
        "http://[2001:db8::1]:81/x",
        "https://other.test/calendar/2024/",
        "https://other.test/x?PRINT=1",
    ],
)
def test_what_a_line_names_is_excluded(file: Path, url: str) -> None:
    assert Exclusions(file).excludes(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/",
        "https://myexample.org/",
        "https://example.org.test/",
        "https://org/",
        "https://paths.test/private",
        "https://sub.www.paths.test/private",
        "https://www.paths.test/",
        "https://www.paths.test/x/private",
        "https://www.paths.test/search",
        "http://7.192.0.2/",
        "https://other.test/calendar/",
    ],
)
def test_all_else_is_not(file: Path, url: str) -> None:
    assert not Exclusions(file).excludes(url)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("re:[", "'re:\\[' is not a regular expression: unterminated character set"),
        ("https://example.org/", "without http://"),
        ("*.example.org", "all hosts below it are included"),
        ("example.org:8080/x", "without http:// and port"),
        ("two words", "'two words' is not a domain"),
        ("/path", "'/path' is not a domain"),
    ],
)
def test_a_bad_line_at_the_start_is_named_by_its_number(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "bad.txt"
    file.write_text(f"# fine\nfine.test\n{line}\n")

    with pytest.raises(BadSetting, match=rf"CRAWL_EXCLUDE_FILE: '.*bad\.txt', line 3: .*{message}"):
        Exclusions(file)


def test_a_file_that_is_not_there_at_the_start_is_a_bad_setting(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"CRAWL_EXCLUDE_FILE: cannot read '.*gone': No such file"):
        Exclusions(tmp_path / "gone")


def test_a_changed_file_is_read_again(file: Path) -> None:
    exclusions = Exclusions(file)
    exclusions.excludes("https://new.test/")

    rewrite(file, "new.test\n")

    assert exclusions.reload_if_changed(100.0)
    assert exclusions.excludes("https://new.test/")
    assert not exclusions.excludes("https://example.org/")


def test_a_file_that_did_not_change_is_not_read_again(file: Path) -> None:
    assert not Exclusions(file).reload_if_changed(100.0)


def test_the_file_is_looked_at_once_a_second(file: Path) -> None:
    exclusions = Exclusions(file)
    exclusions.reload_if_changed(100.0)
    rewrite(file, "new.test\n")

    early, later = exclusions.reload_if_changed(100.9), exclusions.reload_if_changed(101.0)

    assert (early, later) == (False, True)


def test_a_bad_new_file_is_logged_once_and_the_old_rules_stay(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exclusions = Exclusions(file)
    rewrite(file, "new.test\nre:(\n")

    with caplog.at_level(logging.ERROR):
        reloaded = [exclusions.reload_if_changed(float(second)) for second in range(5)]

    assert not any(reloaded)
    assert exclusions.excludes("https://example.org/")
    [record] = caplog.records
    assert "line 2: 're:(' is not a regular expression" in record.message
    assert str(file) in record.message


def test_a_missing_file_is_logged_once_and_reloaded_when_it_is_back(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exclusions = Exclusions(file)
    file.unlink()

    with caplog.at_level(logging.ERROR):
        for second in range(5):
            exclusions.reload_if_changed(float(second))
    kept = exclusions.excludes("https://example.org/")
    rewrite(file, "new.test\n")
    back = exclusions.reload_if_changed(10.0)

    ours = [record for record in caplog.records if record.name == exclusions_module.__name__]
    assert [record.levelname for record in ours if record.levelno >= logging.ERROR] == ["ERROR"]
    assert (kept, back) == (True, True)
    assert exclusions.excludes("https://new.test/")


def test_bytes_that_are_not_text_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(BadSetting, match="is not UTF-8"):
        Exclusions(file)
