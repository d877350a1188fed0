"""What is committed works on any machine, and reveals nothing about ours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: A package index, named or given as an option.
INDEX = re.compile(
    r"\bpypi[.]|pythonhosted[.]|https?://\S+/simple\b|(index-url|find-links)[ =]+\S*[/:]", re.IGNORECASE
)
#: Paths that exist on one machine only.
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(root|home/\w+|Users/\w+|work|opt)/\w")
LOCK_LINE = re.compile(
    r"[a-z0-9-]+==[^\s;]+( ; [^\\]+?)?( \\)?|    --hash=sha256:[0-9a-f]{64}( \\)?|(    )?#.*|"
)


def committed() -> list[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    # A tracked file may be gone from disk until the next commit; this one holds the planted lines.
    paths = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    paths.remove(Path(__file__))
    return [(str(path.relative_to(ROOT)), path.read_text("utf-8", errors="replace")) for path in paths]


@pytest.mark.parametrize("forbidden", [INDEX, MACHINE_PATH], ids=["package index", "machine path"])
def test_nothing_committed_names_this_machine(forbidden: re.Pattern[str]) -> None:
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in committed()
        for number, line in enumerate(text.splitlines(), 1)
        if forbidden.search(line)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("--index-url https://packages.test/simple", INDEX),
        ("--find-links=/wheels", INDEX),
        ("see https://packages.test/root/simple/", INDEX),
        ("cd /home/me/crawl", MACHINE_PATH),
        ("python=/opt/python", MACHINE_PATH),
    ],
)
def test_the_search_would_find_a_planted_line(line: str, pattern: re.Pattern[str]) -> None:
    assert pattern.search(line)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-loading.txt"])
def test_a_lock_holds_pins_and_hashes_and_nothing_else(name: str) -> None:
    lines = (ROOT / name).read_text("utf-8").splitlines()

    assert [line for line in lines if not LOCK_LINE.fullmatch(line)] == []


def pins(name: str) -> set[str]:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    return {line.removesuffix(" \\") for line in lines if "==" in line and not line.startswith(" ")}


def test_the_development_lock_holds_the_lock_of_a_crawl_pin_for_pin() -> None:
    assert pins("requirements.txt")
    assert pins("requirements.txt") <= pins("requirements-dev.txt")


def test_every_direct_dependency_is_locked_and_has_its_reason() -> None:
    lines = (ROOT / "requirements.in").read_text("utf-8").splitlines()
    wanted = {
        re.split(r"[\s<>=;\[]", line)[0]: number
        for number, line in enumerate(lines)
        if line and not line.startswith("#")
    }

    locked = {pin.split("==")[0] for pin in pins("requirements.txt")}

    assert set(wanted) <= locked
    assert [name for name, at in wanted.items() if "#" not in lines[at] + lines[at - 1]] == []
