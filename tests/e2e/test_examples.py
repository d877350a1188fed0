"""The tutorial and the examples do what they say, typed as they are written; only the ports are others."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
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
#: What a reader has; not what is made on the way.
COPIED = ("crawlproj", "examples", "scrapy.cfg", "scrapyd.conf")
PORT = re.compile(r"\b(?:8421|8422|6390)\b")
#: What would change the commands.
FOREIGN = re.compile(r"CRAWL_|REDIS_|SCRAPY_|PYTHON|VIRTUAL_ENV|NO_COLOR|COLUMNS")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of this checkout with its environment, and ports that nobody else uses."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        (shutil.copytree if (PROJECT / name).is_dir() else shutil.copy2)(PROJECT / name, copy / name)
    (copy / ".venv").symlink_to(sys.prefix)
    with HeldPorts() as ports:
        others: dict[str, str] = {}
        for page in [PROJECT / "docs/tutorial.md", *(path for path in PROJECT.glob("examples/**/*"))]:
            if page.is_file() and page.suffix != ".pyc":
                (copy / page.relative_to(PROJECT)).parent.mkdir(exist_ok=True)
                (copy / page.relative_to(PROJECT)).write_text(
                    PORT.sub(
                        lambda found: others.setdefault(found[0], str(ports.hold())), page.read_text("utf-8")
                    )
                )
        yield copy


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_does_what_it_says(document: str, checkout: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    environment["PATH"] = f"{checkout / '.venv' / 'bin'}:{environment['PATH']}"

    follow((checkout / document).read_text("utf-8"), checkout, environment)
