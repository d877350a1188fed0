"""The tutorial and the examples do what they say, typed as they are written; only the ports are others."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.terminals import follow
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [
    "docs/tutorial.md",
    *(str(page.relative_to(PROJECT)) for page in PROJECT.glob("examples/*/*.md")),
]
#: At once; most of the time they wait.
AT_ONCE = 3
PORT = re.compile(r"\b(?:8421|8422|6390)\b")
#: What would change the commands.
FOREIGN = re.compile(r"CRAWL_|REDIS_|SCRAPY_|PYTHON|VIRTUAL_ENV|NO_COLOR|COLUMNS")


@pytest.fixture(scope="module")
def followed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Path]]]:
    """The documents under test, each being followed in a checkout of its own; the result is that checkout."""
    with HeldPorts() as ports, ThreadPoolExecutor(AT_ONCE) as readers:
        yield {
            document: readers.submit(read, document, copied(tmp_path_factory.mktemp("checkout"), ports))
            for document in DOCUMENTS
            if any(document in test.name for test in request.session.items)
        }


def copied(copy: Path, ports: HeldPorts) -> Path:
    """Copy what a reader has into *copy*, with its environment and ports that nobody else uses."""
    shutil.copytree(PROJECT / "crawlproj", copy / "crawlproj")
    shutil.copy2(PROJECT / "scrapy.cfg", copy)
    (copy / ".venv").symlink_to(sys.prefix)
    others: dict[str, str] = {}
    for path in [PROJECT / "docs/tutorial.md", *PROJECT.glob("examples/**/*.*")]:
        if path.is_file() and path.suffix != ".pyc":
            text = PORT.sub(
                lambda found: others.setdefault(found[0], str(ports.hold())), path.read_text("utf-8")
            )
            target = copy / path.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
    return copy


def read(document: str, checkout: Path) -> Path:
    environment = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    environment["PATH"] = f"{checkout / '.venv' / 'bin'}:{environment['PATH']}"
    follow((checkout / document).read_text("utf-8"), checkout, environment)
    return checkout


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_does_what_it_says(document: str, followed: dict[str, Future[Path]]) -> None:
    followed[document].result()
