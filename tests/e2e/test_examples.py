"""The tutorial and the examples do what they say, typed as they are written; only the ports are others."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.e2e.terminals import follow
from tests.ports import HeldPorts

# All documents together, before the first test.
pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [
    "docs/tutorial.md",
    *(str(page.relative_to(PROJECT)) for page in PROJECT.glob("examples/*/*.md")),
]
#: At once; most of the time they wait.
AT_ONCE = 3
PORT = re.compile(r"\b(?:28421|28422|26390)\b")
#: What would change the commands.
FOREIGN = re.compile(r"CRAWL_|REDIS_|SCRAPY_|PYTHON|VIRTUAL_ENV|NO_COLOR|COLUMNS")


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Future[Path]]:
    """The documents under test, each followed in a checkout of its own; the result is that checkout."""
    chosen = [name for name in DOCUMENTS if any(name in test.name for test in request.session.items)]
    # All have ended before the first test is judged: what a failed test has started is killed.
    with HeldPorts() as ports, ThreadPoolExecutor(AT_ONCE) as readers:
        return {
            name: readers.submit(read, name, copied(tmp_path_factory.mktemp("checkout"), ports))
            for name in chosen
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
    # The environment belongs to another checkout.
    environment["PYTHONPATH"] = str(checkout)
    follow((checkout / document).read_text("utf-8"), checkout, environment)
    return checkout


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_does_what_it_says(document: str, outcomes: dict[str, Future[Path]]) -> None:
    outcomes[document].result()


@pytest.mark.parametrize("document", ["examples/warc/README.md"])
def test_the_archive_is_read_by_other_programs(document: str, outcomes: dict[str, Future[Path]]) -> None:
    with (outcomes[document].result() / "tea.warc.gz").open("rb") as file:
        kinds = Counter(record.rec_type for record in ArchiveIterator(file, check_digests="raise"))

    assert kinds == {"warcinfo": 1, "response": 24, "conversion": 22, "metadata": 25}


@pytest.mark.parametrize(
    ("shown", "complaint"),
    [
        ("$ echo one\ntwo", "printed\none\n\ninstead of\ntwo"),
        ("$ echo one", "printed\none\n\ninstead of\n"),
        ("$ true\none", "printed\n\ninstead of\none"),
        ("$ echo why; false\nwhy", "ended with 1:\nwhy"),
        ("$ exit 3", "the terminal is gone"),
    ],
)
def test_what_a_document_shows_wrongly_is_found(shown: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        follow(f"```console\n{shown}\n```\n", tmp_path, os.environ)


def test_a_document_may_leave_out_what_varies_and_use_several_terminals(tmp_path: Path) -> None:
    follow(
        """
```console server
$ trap 'echo closing' INT; echo opening; while [ ! -e found ]; do sleep 0.01; done; echo found
opening
```

```console
$ x="several
> lines"; echo "$x"; date
several
lines
...:...
$ touch found
```

```console server
...
```
""",
        tmp_path,
        os.environ,
    )
