"""docs/guarantees.md has a heading for each promise, and names only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def sections() -> dict[str, str]:
    """The text under the heading of each promise."""
    parts = re.split(r"^## (P\d+) ", (ROOT / "docs/guarantees.md").read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def exists(path: str, name: str) -> bool:
    file = ROOT / path
    return file.is_file() and (not name or f"def {name}(" in file.read_text("utf-8"))


def test_every_promise_says_how_it_holds_what_proves_it_and_its_limits() -> None:
    found = sections()

    assert list(found) == [f"P{number}" for number in range(1, 14)]
    for number, text in found.items():
        parts = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)
        assert parts == ["How it holds.", "Proved by", "Limits."], number


def test_every_test_named_as_a_proof_exists() -> None:
    proofs = {
        number: re.findall(r"`(tests/\S+\.py)(?:::(\w+))?`", text) for number, text in sections().items()
    }

    missing = [
        f"{path}::{name}" for named in proofs.values() for path, name in named if not exists(path, name)
    ]

    assert [number for number, named in proofs.items() if not named] == []
    assert missing == []
