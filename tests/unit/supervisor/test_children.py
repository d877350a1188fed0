"""A child process: how it ends, and what its log shows."""

from __future__ import annotations

from pathlib import Path

from crawlproj.supervisor.children import Child, LogFiles, describe_exit


def child_with(log: Path, text: str) -> Child:
    log.write_text(text)
    return Child("shard 0", [], log)


def test_every_process_has_a_log_of_its_own_in_the_folder_or_beside_the_file_that_was_asked_for() -> None:
    usual, asked = LogFiles(Path("logs")), LogFiles(Path("logs"), "elsewhere/crawl.out")

    assert [str(path) for path in (usual.own, usual.of("shard-0"))] == [
        "logs/supervisor.log",
        "logs/shard-0.log",
    ]
    assert [str(path) for path in (asked.own, asked.of("shard-0"))] == [
        "elsewhere/crawl.out",
        "elsewhere/crawl-shard-0.log",
    ]


def test_errors_are_returned_once_without_time_and_name(tmp_path: Path) -> None:
    child = child_with(
        tmp_path / "log",
        "2026-01-01 00:00:00 [scrapy.core] INFO: fine\n"
        "2026-01-01 00:00:01 [crawlproj.scheduler] ERROR: shard 0 stops: no room\n"
        "scrapy parser: Unknown setting CRAWL_X.\n",
    )

    first, again = child.new_errors(), child.new_errors()

    assert first == ["shard 0 stops: no room", "scrapy parser: Unknown setting CRAWL_X."]
    assert again == []
    assert child.last_error == "scrapy parser: Unknown setting CRAWL_X."


def test_a_line_that_is_not_whole_yet_waits_for_its_end(tmp_path: Path) -> None:
    child = child_with(tmp_path / "log", "[a] ERROR: first\n[a] ERROR: sec")

    first = child.new_errors()
    with child.log.open("a") as log:
        log.write("ond\n")
    second = child.new_errors()

    assert (first, second) == (["first"], ["second"])


def test_the_exception_of_a_traceback_is_the_last_word(tmp_path: Path) -> None:
    child = child_with(
        tmp_path / "log",
        "[twisted] CRITICAL: Unhandled error\nTraceback (most recent call last):\n  File x\nKeyError: 'a'\n",
    )

    child.new_errors()

    assert child.last_error == "KeyError: 'a'"


def test_a_missing_log_has_no_errors(tmp_path: Path) -> None:
    assert Child("shard 0", [], tmp_path / "none").new_errors() == []


def test_errors_of_a_json_log_are_returned_as_messages(tmp_path: Path) -> None:
    child = child_with(
        tmp_path / "log",
        '{"time": "2026", "level": "INFO", "message": "fine"}\n'
        '{"time": "2026", "level": "ERROR", "message": "shard 0 stops: no room", "pid": 7}\n'
        '{"time": "2026", "level": "CRITICAL", "message": "broke", "exception": "Traceback\\nKeyError: 1"}\n',
    )

    assert child.new_errors() == ["shard 0 stops: no room", "broke: KeyError: 1"]
    assert child.last_error == "broke: KeyError: 1"


def test_other_ends_of_lines_than_that_of_a_log_are_part_of_a_line(tmp_path: Path) -> None:
    child = child_with(tmp_path / "log", '{"time": "2026", "level": "ERROR", "message": "no\u2028room"}\n')

    assert child.new_errors() == ["no\u2028room"]


def test_a_line_too_long_to_be_read_hides_none_after_it(tmp_path: Path) -> None:
    child = child_with(tmp_path / "log", "x" * 1_500_000 + "\n[a] ERROR: after\n")

    assert [*child.new_errors(), *child.new_errors()] == ["after"]


def test_what_it_says_past_its_log_counts_too(tmp_path: Path) -> None:
    child = child_with(tmp_path / "shard-0.log", "")
    child.output.write_text("Traceback (most recent call last):\n  File x\nImportError: no such thing\n")

    child.new_errors()

    assert child.output.name == "shard-0.out"
    assert child.last_error == "ImportError: no such thing"


def test_a_log_that_was_rotated_is_read_from_its_beginning(tmp_path: Path) -> None:
    child = child_with(tmp_path / "log", "[a] INFO: a long line that was read before\n[a] ERROR: old\n")
    child.new_errors()

    child.log.rename(tmp_path / "log.1")
    child.log.write_text("[a] ERROR: new\n")

    assert child.new_errors() == ["new"]


def test_an_exit_is_described_by_code_or_signal() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "signal 9"
