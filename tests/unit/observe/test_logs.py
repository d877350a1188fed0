"""Lines of the log: for people, and for programs."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawlproj.observe import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("crawlproj.tests.lines")
    made.propagate = False
    made.setLevel(logging.INFO)
    logs.name_process("news", "shard", 3)
    yield made
    made.handlers.clear()
    logs.name_process("", "", "")


def only_line(out: io.StringIO) -> dict[str, Any]:
    [line] = out.getvalue().splitlines()
    read: dict[str, Any] = json.loads(line)
    return read


def test_a_terminal_gets_text_with_the_process_in_it(logger: logging.Logger) -> None:
    out = Terminal()
    logger.addHandler(logs.make_handler("auto", out=out))

    logger.warning("disk is %s", "full")

    process = f"news shard 3 {os.getpid()} on {socket.gethostname()}"
    ending = f" {process} [crawlproj.tests.lines] WARNING: disk is full\n"
    assert out.getvalue().endswith(ending)


def test_everything_else_gets_json_with_the_facts_as_members(logger: logging.Logger) -> None:
    out = io.StringIO()
    logger.addHandler(logs.make_handler("auto", out=out))

    logger.warning("domain backed off", extra={"domain": "bücher.example", "delay_s": 60})

    line = only_line(out)
    assert line.pop("time").startswith("20")
    assert line == {
        "level": "WARNING",
        "logger": "crawlproj.tests.lines",
        "message": "domain backed off",
        "run": "news",
        "kind": "shard",
        "number": "3",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "domain": "bücher.example",
        "delay_s": 60,
    }


def test_an_exception_stays_on_the_line_it_belongs_to(logger: logging.Logger) -> None:
    out = io.StringIO()
    logger.addHandler(logs.make_handler("json", out=out))

    try:
        raise ValueError("no such page")
    except ValueError:
        logger.exception("broke")

    assert only_line(out)["exception"].endswith("ValueError: no such page")


def test_facts_that_are_not_json_become_text_and_cannot_hide_ours(logger: logging.Logger) -> None:
    out = io.StringIO()
    logger.addHandler(logs.make_handler("json", out=out))

    logger.info("seeds", extra={"file": Path("seeds.txt"), "level": "loud", "spider": object()})

    line = only_line(out)
    assert (line["file"], line["level"]) == ("seeds.txt", "INFO")
    assert "spider" not in line


@pytest.mark.parametrize(("form", "is_json"), [("text", False), ("json", True)])
def test_the_form_can_be_chosen(logger: logging.Logger, form: str, is_json: bool) -> None:
    out = Terminal() if is_json else io.StringIO()
    logger.addHandler(logs.make_handler(form, out=out))

    logger.info("started")

    assert out.getvalue().startswith("{") is is_json


def test_a_file_is_rotated_and_only_some_are_kept(
    logger: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    monkeypatch.setattr(logs, "OLD_FILES", 2)
    handler = logs.make_handler("auto", tmp_path / "logs" / "shard-0.log")
    logger.addHandler(handler)

    for number in range(200):
        logger.info("line %d", number)
    handler.close()

    files = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert files == ["shard-0.log", "shard-0.log.1", "shard-0.log.2"]
    assert all(path.stat().st_size <= 2000 for path in (tmp_path / "logs").iterdir())


def test_processes_that_share_a_file_switch_to_the_new_one_after_rotation(
    logger: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    path = tmp_path / "parser.log"
    guard, child = logs.make_handler("json", path), logs.make_handler("json", path)
    logger.addHandler(child)
    while not (tmp_path / "parser.log.1").exists():
        logger.info("a line of the child")

    logger.handlers[:] = [guard]
    logger.warning("parser process died")
    logger.handlers[:] = [child]
    logger.info("the next")
    guard.close()
    child.close()

    assert [json.loads(line)["message"] for line in path.read_text().splitlines()][-2:] == [
        "parser process died",
        "the next",
    ]
    assert not (tmp_path / "parser.log.2").exists()


def test_text_that_is_none_is_a_line_all_the_same(logger: logging.Logger, tmp_path: Path) -> None:
    handler = logs.make_handler("json", tmp_path / "log")
    # Alone: what pytest catches itself must be text.
    logger.handlers[:] = [handler]

    logger.info("a title: \udcff")
    handler.close()

    assert json.loads((tmp_path / "log").read_text())["message"] == "a title: \udcff"


def test_what_a_json_log_says_can_be_read_again(logger: logging.Logger) -> None:
    out = io.StringIO()
    logger.addHandler(logs.make_handler("json", out=out))

    logger.error("Redis at %s is gone", "a:1")
    try:
        raise ValueError("no such page")
    except ValueError:
        logger.exception("broke")
    lines = [*out.getvalue().splitlines(), "Traceback (most recent call last):", '{"time": broken']

    assert [logs.parse_json_line(line) for line in lines] == [
        ("ERROR", "Redis at a:1 is gone"),
        ("ERROR", "broke: ValueError: no such page"),
        None,
        None,
    ]


def test_warnings_are_passed_on_as_plain_messages(logger: logging.Logger) -> None:
    messages: list[str] = []
    logger.addHandler(logs.CallbackHandler(messages.append))

    logger.info("fine")
    logger.warning("Redis is %s", "unreachable")

    assert messages == ["Redis is unreachable"]


def test_a_format_of_the_users_own_is_kept_for_text(logger: logging.Logger) -> None:
    out = io.StringIO()
    logger.addHandler(logs.make_handler("text", out=out, fmt="%(levelname)s!%(message)s"))

    logger.info("started")

    assert out.getvalue() == "INFO!started\n"
