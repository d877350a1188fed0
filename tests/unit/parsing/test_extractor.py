"""Extraction in another process gives what it gives in this one, and survives what kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawlproj.config import load_config
from crawlproj.model.records import Page
from crawlproj.pages.envelope import pack
from crawlproj.parsing.extract import ExtractOptions, extract
from crawlproj.parsing.extractor import Extractor, ExtractorFailed, PageFailed, _write
from tests.patience import PATIENCE_S

#: Tries all ways to split a long row of letters, which takes for ever and holds Python's lock.
HANGS_ON = {"hang": "xpath://body[re:test(string(.), '(a+)+$')]"}
SETTINGS: dict[str, Any] = {"CRAWL_PARSE_SECONDS": 2, "CRAWL_FIELDS": HANGS_ON, "CRAWL_FULL_TEXT": True}


def page_of(body: str) -> Page:
    headers = {"content-type": "text/html; charset=utf-8"}
    return Page("http://a.test/", "web", "a.test", 0, 200, 0, 0, headers, body.encode())


FINE = page_of("<title>Größe</title><body><p>Words, and then more words.</p><a href='/b?utm_source=x'>b</a>")
HANGING = page_of("<body>" + "a" * 60 + "!")


@pytest.fixture
def extractor() -> Iterator[Extractor]:
    extractor = Extractor(load_config(SETTINGS))
    yield extractor
    extractor.close()


def test_it_finds_what_extraction_in_this_process_finds(extractor: Extractor) -> None:
    found = extractor.extract(pack(FINE))

    assert found == extract(FINE, ExtractOptions(load_config(SETTINGS)))
    assert (found.title, found.links) == ("Größe", ["http://a.test/b"])


def test_a_page_that_takes_too_long_is_given_up_and_the_next_one_read(extractor: Extractor) -> None:
    with pytest.raises(PageFailed, match="took longer than CRAWL_PARSE_SECONDS"):
        extractor.extract(pack(HANGING))

    assert extractor.extract(pack(FINE)).title == "Größe"


def test_a_page_that_kills_the_child_is_blamed(extractor: Extractor) -> None:
    extractor.extract(pack(FINE))
    assert extractor._child is not None

    os.kill(extractor._child.pid, signal.SIGSEGV)

    with pytest.raises(PageFailed, match="killed its parser with SIGSEGV"):
        extractor.extract(pack(FINE))


def test_a_wait_for_a_page_can_be_ended_and_no_page_is_blamed() -> None:
    extractor = Extractor(load_config(SETTINGS | {"CRAWL_PARSE_SECONDS": 600}))
    extractor.extract(pack(FINE))
    killer = threading.Timer(0.2, extractor.kill)

    killer.start()

    with pytest.raises(ExtractorFailed):
        extractor.extract(pack(HANGING))
    with pytest.raises(ExtractorFailed, match="The extractor was killed"):
        extractor.extract(pack(FINE))
    extractor.close()


def test_a_damaged_envelope_fails_and_the_child_continues(extractor: Extractor) -> None:
    with pytest.raises(PageFailed, match="BadEnvelope"):
        extractor.extract(b"\x00damaged")

    assert extractor.extract(pack(FINE)).title == "Größe"


def test_a_child_that_cannot_work_is_not_blamed_on_the_page(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(ExtractorFailed, match="ended with exit code 1"):
        extractor.extract(pack(FINE))


def test_the_child_ends_when_its_parent_is_killed() -> None:
    program = (
        "import os, time\n"
        "from crawlproj.config import load_config\n"
        "from crawlproj.parsing.extractor import Extractor\n"
        "extractor = Extractor(load_config({}))\n"
        f"extractor.extract({pack(FINE)!r})\n"
        "print(extractor._child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())

        parent.send_signal(signal.SIGKILL)

    deadline_s = time.monotonic() + PATIENCE_S
    while _is_running(child):
        assert time.monotonic() < deadline_s, "the child lives on"
        time.sleep(0.02)


def test_the_child_of_a_parent_killed_before_its_answer_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **more: popen(*words, **more, stderr=-1))
    child = Extractor(load_config(SETTINGS))._start()
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None

    # As the kernel does for one that is killed; what was sent is still read.
    child.stdout.close()
    _write(child.stdin, pack(FINE))
    child.stdin.close()

    # Without a compiler it says at its start that the HTML reader is not built.
    assert b"Error" not in child.stderr.read()
    assert child.wait(PATIENCE_S) == 0
    child.stderr.close()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A zombie does not count as a process.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
