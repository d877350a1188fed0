from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from crawlproj.redisio.answers import ScriptError
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.scripts import BadScript, Scripts

GOOD = """\
-- add_pair: set two keys at once.
-- KEYS[1] left   string
-- KEYS[2] right  string
-- ARGV[1] value
-- returns 'OK'
redis.call('SET', KEYS[1], ARGV[1])
return redis.call('SET', KEYS[2], ARGV[1])
"""


def test_a_script_is_known_by_name_with_its_text_sha_and_keys(tmp_path: Path) -> None:
    (tmp_path / "add_pair.lua").write_text(GOOD)

    script = Scripts(tmp_path)["add_pair"]

    assert (script.name, script.keys) == ("add_pair", ("left", "right"))
    assert script.text.endswith(GOOD)
    assert script.sha == hashlib.sha1(script.text.encode()).hexdigest()


async def test_a_script_can_use_what_the_prelude_defines(client: RedisClient, tmp_path: Path) -> None:
    (tmp_path / "read_time.lua").write_text("-- read_time: x.\n-- returns ms\nreturn clock(ARGV[1])\n")

    given = await client.command("EVAL", Scripts(tmp_path)["read_time"].text, 0, 1234)

    assert given == 1234


async def test_an_error_names_the_line_of_the_scripts_own_file(client: RedisClient, tmp_path: Path) -> None:
    (tmp_path / "break_down.lua").write_text("-- break_down: x.\n-- returns 1\nlocal a = nil\nreturn a.b\n")

    with pytest.raises(ScriptError, match=r"user_script:4:"):
        await client.command("EVAL", Scripts(tmp_path)["break_down"].text, 0)


def test_the_prelude_is_not_a_script() -> None:
    assert "prelude" not in Scripts().names()
    with pytest.raises(BadScript, match="no Lua script 'prelude'"):
        Scripts()["prelude"]


def test_a_script_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "add_pair.lua").write_text(GOOD)
    scripts = Scripts(tmp_path)
    first = scripts["add_pair"]

    (tmp_path / "add_pair.lua").unlink()

    assert scripts["add_pair"] is first


def test_an_unknown_script_is_refused_and_the_known_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / "add_pair.lua").write_text(GOOD)

    with pytest.raises(BadScript, match=r"no Lua script 'add_pear'.*add_pair"):
        Scripts(tmp_path)["add_pear"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must open with '-- step: "),
        ("return 1\n", "must open with '-- step: "),
        ("-- other: of another name.\nreturn 1\n", "must open with '-- step: "),
        ("-- step:\nreturn 1\n", "must open with '-- step: "),
        ("-- step: x.\n-- KEYS[2] b\nreturn 1\n", r"line 2 must declare '-- KEYS\[1\]"),
        ("-- step: x.\n-- KEYS[1] a\n-- KEYS[1] b\nreturn 1\n", r"line 3 must declare '-- KEYS\[2\]"),
        ("-- step: x.\n-- KEYS[2..] many\nreturn 1\n", r"line 2 must declare '-- KEYS\[1\]"),
    ],
)
def test_a_wrong_header_is_refused_with_what_would_be_right(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "step.lua").write_text(text)

    with pytest.raises(BadScript, match=complaint):
        Scripts(tmp_path)["step"]


def test_comments_below_the_header_declare_nothing(tmp_path: Path) -> None:
    (tmp_path / "step.lua").write_text(
        "-- step: x.\n-- KEYS[1] a\nlocal b = 1\n-- KEYS[9] is not meant\nreturn b\n"
    )

    assert Scripts(tmp_path)["step"].keys == ("a",)


def test_every_script_of_the_package_has_a_good_header() -> None:
    scripts = Scripts()

    names = [scripts[name].name for name in scripts.names()]

    assert names
    assert names == scripts.names()
