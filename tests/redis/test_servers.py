"""Which redis-server is started for a data directory. Stubs answer to --version only."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproj.errors import RedisRefused
from crawlproj.redisio.servers import Note, Server, find_servers, newest_that_reads, server_for


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no redis-server but the stubs in this folder, which is on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("crawlproj.redisio.servers._FOLDERS", ())
    monkeypatch.setattr("crawlproj.redisio.servers.find_spec", lambda name: None)
    return tmp_path


def stub(folder: Path, says: str, code: int = 0) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "redis-server"
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


BUNDLED = Server("/venv/redis-server", (6, 2, 14))
SYSTEM = Server("/usr/bin/redis-server", (7, 0, 15))
NEWEST = Server("/usr/lib/redis-server", (8, 2, 1))
OLD = Server("/old/redis-server", (5, 0, 14))


@pytest.mark.parametrize(
    ("servers", "written", "chosen"),
    [
        ([BUNDLED, SYSTEM], (0, 0, 0), SYSTEM),
        ([SYSTEM, BUNDLED], (6, 2, 14), SYSTEM),
        ([BUNDLED, SYSTEM], (7, 0, 11), SYSTEM),
        ([BUNDLED, NEWEST, SYSTEM], (7, 0, 15), NEWEST),
        # A patch release of the same series reads the same files.
        ([BUNDLED], (6, 2, 16), BUNDLED),
        ([BUNDLED], (7, 0, 15), None),
        ([BUNDLED, SYSTEM], (7, 2, 0), None),
        ([OLD], (0, 0, 0), None),
        ([], (0, 0, 0), None),
    ],
)
def test_the_newest_server_that_reads_the_data_is_chosen_whatever_the_order(
    servers: list[Server], written: tuple[int, int, int], chosen: Server | None
) -> None:
    assert newest_that_reads(servers, written) == chosen
    assert newest_that_reads(servers[::-1], written) == chosen


def test_all_servers_on_path_are_found_not_only_the_first(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stub(alone / "a", "Redis server v=6.2.14 sha=0")
    second = stub(alone / "b", "Redis server v=7.0.15 sha=0")
    (alone / "c").symlink_to(alone / "b")
    monkeypatch.setenv("PATH", f"{alone}/a:{alone}/b:{alone}/c:{alone}/missing")

    found = find_servers()

    assert found == [Server(first, (6, 2, 14)), Server(second, (7, 0, 15))]


def test_programs_that_are_no_redis_are_no_candidates(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(alone / "broken", "cannot execute", 126)
    stub(alone / "valkey", "Valkey server v=8.1.0 sha=0")
    (alone / "garbage").mkdir()
    (alone / "garbage" / "redis-server").write_bytes(b"\x7fELF")
    (alone / "garbage" / "redis-server").chmod(0o755)
    monkeypatch.setenv("PATH", f"{alone}/broken:{alone}/valkey:{alone}/garbage")

    assert find_servers() == []


def test_the_server_that_wrote_the_data_is_found_again_where_it_was(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    somewhere = stub(alone / "somewhere", "Redis server v=7.4.0 sha=0")
    monkeypatch.setenv("PATH", f"{alone}/somewhere")
    server_for(alone)

    monkeypatch.setenv("PATH", str(alone))

    assert server_for(alone) == Server(somewhere, (7, 4, 0))


def test_data_without_a_note_is_judged_by_its_files(alone: Path) -> None:
    fresh = Note.read(alone)

    (alone / "appendonlydir").mkdir()

    assert fresh.version == (0, 0, 0)
    assert Note.read(alone).version == (7, 0, 0)


def test_a_refusal_names_the_servers_it_found_and_keeps_the_note(alone: Path) -> None:
    path = stub(alone, "Redis server v=6.2.14 sha=0")
    (alone / "VERSION").write_text("7.0.15\n/gone\n")

    with pytest.raises(
        RedisRefused, match=rf"by Redis 7\.0\.15, .*\({path} 6\.2\.14\)\. Install .* REDIS_SERVER"
    ):
        server_for(alone)

    assert Note.read(alone) == Note((7, 0, 15), "/gone")


def test_a_machine_without_a_server_says_how_to_get_one(alone: Path) -> None:
    with pytest.raises(
        RedisRefused, match=r"No redis-server 6\.2\.0 or newer was found\. Install redis-server"
    ):
        server_for(alone)


def test_a_named_server_that_does_not_run_is_refused(alone: Path) -> None:
    with pytest.raises(RedisRefused, match="REDIS_SERVER='/nowhere/redis-server' is not a redis-server"):
        server_for(alone, "/nowhere/redis-server")
