"""Rules for the Lua steps: they say what they touch, touch nothing else, and stay short and readable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LUA = ROOT / "crawlproj/redisio/lua"
#: What the loader puts in front of every step; not a step itself.
PRELUDE = LUA / "prelude.lua"
SCRIPTS = sorted(set(LUA.glob("*.lua")) - {PRELUDE})
#: A step does one thing while all of Redis waits.
MOST_STATEMENTS = 100
WIDTH = 110
#: Commands that take no key: their first argument may be anything.
KEYLESS = {"TIME", "PUBLISH", "INFO"}

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

    calls = re.findall(r"(?:redis\.p?call|call_in_parts)\(\s*([^,)]+?)\s*(?:,\s*([^,)]+?)\s*)?[,)]", text)
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


def statements_in(body: list[str]) -> int:
    """Count statements, however packed: a condition or loop counts one, an assignment one for each target."""
    text = re.sub(r"'[^']*'", "''", "\n".join(body))
    # A wrapped line is one: between brackets, or behind what cannot end a statement.
    while (joined := re.sub(r"([({][^(){}]*)\n\s*", r"\1 ", text)) != text:
        text = joined
    text = re.sub(r"(\.\.|[=,]|\band|\bor)\n\s*", r"\1 ", text)
    opening = r"(?=\b(?:local|if|elseif|for|while|until|return|break)\b)"
    parts = (part.strip() for part in re.split(rf"\n|;|\b(?:then|do|else|repeat|end)\b|{opening}", text))
    count = 0
    for part in filter(None, parts):
        targets = re.match(r"(?:local )?([\w.]+(?:\[[^]]*\])?(?:, [\w.]+(?:\[[^]]*\])?)*) = ", part)
        count += len(targets[1].split(", ")) if targets else 1
    return count


@pytest.mark.parametrize(
    ("code", "statements"),
    [
        ("return 1", 1),
        ("local a, b = 1, 2", 2),
        ("a[i + 1], b.c = f(x, y), {d = 1, e = 2}", 2),
        ("if a == b then c = 1 elseif d then e() else return end", 5),
        ("for _, a in ipairs(b) do f(a); g('x; do end') end", 3),
        ("local function f(a) return a end", 2),
        ("local a = 1 local b = 2", 2),
        ("f(a,\n  b)", 1),
        ("a = b ..\n  c", 1),
        ("repeat f() until a", 2),
    ],
)
def test_statements_are_counted_however_they_are_packed(code: str, statements: int) -> None:
    assert statements_in(code.splitlines()) == statements


@pytest.mark.parametrize("script", [PRELUDE, *SCRIPTS], ids=lambda path: path.stem)
def test_a_script_has_few_statements_and_no_wide_line(script: Path) -> None:
    wide = [line for line in script.read_text("utf-8").splitlines() if len(line) > WIDTH]

    assert wide == []
    assert statements_in(header_and_body(script)[1]) <= MOST_STATEMENTS


def test_the_prelude_takes_everything_as_arguments() -> None:
    _, body = header_and_body(PRELUDE)

    assert [line for line in body if re.search(r"\b(KEYS|ARGV)\b", line)] == []


@each_script
def test_a_script_leaves_the_formats_to_the_prelude(script: Path) -> None:
    """The state of a domain, a lease's token, the clock, the fence: written and read in one place."""
    text = "\n".join(header_and_body(script)[1])

    assert re.findall(r"%d\+ |'TIME'|FENCED epoch|unpack\(\w+, \w+, ", text) == []


@each_script
def test_a_script_has_its_own_tests(script: Path) -> None:
    tests = [path.read_text("utf-8") for path in (ROOT / "tests/redis").rglob("test_*.py")]

    assert (ROOT / "tests/redis" / f"test_{script.stem}.py").exists() or any(
        re.search(rf"\b{script.stem}\b", text) for text in tests
    ), f"no file in tests/redis is about {script.stem}"


def test_no_script_flushes_or_scans_everything() -> None:
    forbidden = re.compile(r"'(KEYS|SCAN|FLUSHALL|FLUSHDB)'", re.IGNORECASE)

    assert [path.name for path in SCRIPTS if forbidden.search("\n".join(header_and_body(path)[1]))] == []
