"""Rules for the Lua steps: they say what they touch, touch nothing else, and stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "crawlproj/redisio/lua").glob("*.lua"))
#: Commands that take no key: their first argument may be anything.
KEYLESS = {"TIME", "PUBLISH"}

each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def header_and_body(script: Path) -> tuple[list[str], list[str]]:
    """Return the comment block at the top, and every line of code below it."""
    lines = script.read_text("utf-8").splitlines()
    top = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    code = (re.sub(r"--.*", "", line).rstrip() for line in lines[top:])
    return lines[:top], [line for line in code if line]


@each_script
def test_a_script_declares_exactly_the_keys_it_uses(script: Path) -> None:
    header, body = header_and_body(script)

    declared = [int(n) for line in header for n in re.findall(r"^-- KEYS\[(\d+)\] +\w+ +\w+", line)]
    used = {int(n) for n in re.findall(r"KEYS\[(\d+)\]", "\n".join(body))}

    assert declared == sorted(used), f"{script.name} declares KEYS {declared} and uses {sorted(used)}"
    assert declared == list(range(1, len(declared) + 1))


@each_script
def test_a_script_reaches_keys_only_by_what_it_was_given_as_keys(script: Path) -> None:
    _, body = header_and_body(script)
    text = "\n".join(body)

    calls = re.findall(r"redis\.p?call\(\s*([^,)]+?)\s*(?:,\s*([^,)]+?)\s*)?[,)]", text)
    literal = [(command, key) for command, key in calls if key.startswith(("'", '"', "ARGV"))]
    built = re.findall(r"KEYS\[[^\d\]][^\]]*\]", text)

    assert [key for command, key in literal if command.strip("'\"") not in KEYLESS] == []
    assert all(re.fullmatch(r"'[A-Z]+'", command) for command, _ in calls), "the command must be a literal"
    assert built == [], "a computed index hides which key is used"


@each_script
def test_a_script_opens_with_its_name_and_says_what_it_returns(script: Path) -> None:
    header, _ = header_and_body(script)

    assert header
    assert re.match(rf"-- {script.stem}: \S", header[0])
    assert any(line.startswith("-- returns ") for line in header)
    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", script.stem), "verb_noun.lua"


@each_script
def test_a_script_is_under_sixty_lines(script: Path) -> None:
    _, body = header_and_body(script)

    assert len(body) < 60


@each_script
def test_a_script_has_its_own_tests(script: Path) -> None:
    tests = [path.read_text("utf-8") for path in (ROOT / "tests/redis").rglob("test_*.py")]

    assert (ROOT / "tests/redis" / f"test_{script.stem}.py").exists() or any(
        re.search(rf"\b{script.stem}\b", text) for text in tests
    ), f"no file in tests/redis is about {script.stem}"


@pytest.mark.skipif(not SCRIPTS, reason="no script yet")
def test_no_script_flushes_or_scans_everything() -> None:
    forbidden = re.compile(r"'(KEYS|SCAN|FLUSHALL|FLUSHDB)'", re.IGNORECASE)

    assert [path.name for path in SCRIPTS if forbidden.search("\n".join(header_and_body(path)[1]))] == []
