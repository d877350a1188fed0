from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from crawlproj.errors import RedisRefused, RedisUnreachable
from crawlproj.redisio import embedded
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.embedded import ensure_running, stop_if_unused
from crawlproj.redisio.servers import dotted, find_servers, server_for
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
START_WHEN_TOLD = """
import sys
from pathlib import Path
from crawlproj.redisio.embedded import ensure_running
print("here", flush=True)
sys.stdin.readline()
print(ensure_running(Path(sys.argv[1])), flush=True)
"""
START_AS_USER = """
import os, sys
from pathlib import Path
from crawlproj.redisio.embedded import ensure_running
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
print(ensure_running(Path(sys.argv[1])))
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="crawl-") as folder:
        yield Path(folder)
        kill_server(Path(folder))


@pytest.fixture
async def embedded_door(data_dir: Path) -> AsyncIterator[RedisClient]:
    opened = await RedisClient.open(url=None, data_dir=data_dir, wait_s=10)
    yield opened
    await opened.close()


def pid_of_server(data_dir: Path) -> int:
    return int((data_dir / "redis" / "redis.pid").read_text())


def kill_server(data_dir: Path) -> None:
    try:
        os.kill(pid_of_server(data_dir), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass


def starts_of_server(data_dir: Path) -> int:
    return (data_dir / "redis" / "redis.log").read_text().count("Redis is starting")


def start_at_once(data_dir: Path, count: int) -> list[str]:
    """What *count* processes get that ask for the server in the same moment."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", START_WHEN_TOLD, str(data_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=PATIENCE_S)[0].strip() for process in processes]


def test_twelve_processes_that_start_at_once_share_one_server(data_dir: Path) -> None:
    urls = start_at_once(data_dir, 12)

    assert urls == [f"unix://{data_dir}/redis/redis.sock"] * 12
    assert starts_of_server(data_dir) == 1


def test_twelve_processes_that_find_the_server_killed_start_it_once(data_dir: Path) -> None:
    ensure_running(data_dir)
    kill_server(data_dir)

    urls = start_at_once(data_dir, 12)

    assert urls == [f"unix://{data_dir}/redis/redis.sock"] * 12
    assert starts_of_server(data_dir) == 2


async def test_a_killed_server_comes_back_with_its_data_and_the_calls_complete(
    data_dir: Path, embedded_door: RedisClient
) -> None:
    await embedded_door.command("SET", "before", "kept")
    first = pid_of_server(data_dir)

    kill_server(data_dir)
    answers = await embedded_door.pipeline([("GET", "before"), ("SET", "after", "done")])

    assert answers == [b"kept", b"OK"]
    assert pid_of_server(data_dir) != first


async def test_the_embedded_server_keeps_everything_and_evicts_nothing(embedded_door: RedisClient) -> None:
    answers = await embedded_door.pipeline(
        [("CONFIG GET", name) for name in ("appendonly", "appendfsync", "save", "maxmemory-policy", "port")]
    )

    assert [value for _, value in answers] == [b"yes", b"everysec", b"", b"noeviction", b"0"]


def test_the_terminals_interrupt_does_not_reach_the_server(data_dir: Path) -> None:
    ensure_running(data_dir)

    assert os.getsid(pid_of_server(data_dir)) != os.getsid(0)


def test_only_its_owner_may_connect(data_dir: Path) -> None:
    ensure_running(data_dir)

    assert (data_dir / "redis" / "redis.sock").stat().st_mode & 0o777 == 0o700
    assert (data_dir / "redis").stat().st_mode & 0o777 == 0o700


def test_a_paused_server_is_not_started_a_second_time(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "PING_S", 0.05)
    ensure_running(data_dir)
    os.kill(pid_of_server(data_dir), signal.SIGSTOP)

    with pytest.raises(RedisUnreachable, match=r"not ready in 0\.2 s"):
        ensure_running(data_dir, wait_s=0.2)

    os.kill(pid_of_server(data_dir), signal.SIGCONT)
    ensure_running(data_dir)
    assert starts_of_server(data_dir) == 1


async def test_a_server_that_cannot_write_answers_those_who_read(
    data_dir: Path, embedded_door: RedisClient
) -> None:
    await embedded_door.command("SET", "key", "kept")
    # A directory is in the place of the snapshot, so that writing it fails as on a full disk.
    (data_dir / "redis" / "dump.rdb").mkdir()
    await embedded_door.command("CONFIG SET", "save", "3600 1")
    await embedded_door.command("BGSAVE")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if b"bgsave_status:err" in await embedded_door.command("INFO", "persistence"):
                break
            await asyncio.sleep(0.005)

    reader = await RedisClient.open(url=None, data_dir=data_dir, wait_s=1)
    kept = await reader.command("GET", "key")
    await reader.close()
    # With it, a server that cannot write does not stop when it is asked to.
    await embedded_door.command("CONFIG SET", "save", "")

    assert kept == b"kept"


def test_a_server_that_cannot_start_is_one_clear_line(data_dir: Path) -> None:
    (data_dir / "redis").mkdir()
    (data_dir / "redis" / "appendonly.aof").write_text("this is no AOF\n" * 10)

    with pytest.raises(
        RedisUnreachable, match=r"exited while starting: .*Bad file format.*redis\.log"
    ) as caught:
        ensure_running(data_dir)

    assert "\n" not in str(caught.value)


async def test_a_path_too_long_for_a_socket_works_through_a_private_short_one(data_dir: Path) -> None:
    deep = data_dir / ("d" * 60) / ("ä" * 30)

    client = await RedisClient.open(url=None, data_dir=deep)
    short = Path(client.where).parent

    try:
        assert await client.command("PING") == b"PONG"
        assert ensure_running(deep) == f"unix://{client.where}"
        assert len(client.where) <= 103
        assert short.stat().st_mode & 0o777 == 0o700
    finally:
        await client.close()
        kill_server(deep)
        shutil.rmtree(short)


def test_a_short_path_that_others_can_enter_is_refused(data_dir: Path) -> None:
    deep = data_dir / ("d" * 100)
    short = Path(ensure_running(deep).removeprefix("unix://")).parent
    kill_server(deep)
    short.chmod(0o777)

    try:
        with pytest.raises(RedisRefused, match="not a private directory"):
            ensure_running(deep)
    finally:
        shutil.rmtree(short)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_plain_user_can_run_it(data_dir: Path) -> None:
    nobody = 65534
    os.chown(data_dir, nobody, nobody)
    # The interpreter and the wheel may lie where only root can go: become nobody after the imports,
    # with a copy of the server on PATH.
    shutil.copy(server_for(data_dir).path, data_dir / "redis-server")

    done = subprocess.run(
        [sys.executable, "-c", START_AS_USER, str(data_dir), str(nobody)],
        cwd=ROOT,
        env={"PATH": str(data_dir)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.stdout == f"unix://{data_dir}/redis/redis.sock\n", done.stderr
    assert Path(f"/proc/{pid_of_server(data_dir)}").stat().st_uid == nobody


def test_data_of_a_newer_server_is_refused_instead_of_starting_empty(data_dir: Path) -> None:
    ensure_running(data_dir)
    assert stop_if_unused(data_dir)
    (data_dir / "redis" / "VERSION").write_text("99.1.2\n")

    with pytest.raises(
        RedisRefused, match=r"written by Redis 99\.1\.2, which no .* can read .*REDIS_SERVER"
    ) as caught:
        ensure_running(data_dir)

    assert "\n" not in str(caught.value)
    assert starts_of_server(data_dir) == 1


def test_the_server_that_wrote_the_data_is_noted(data_dir: Path) -> None:
    ensure_running(data_dir)

    noted = (data_dir / "redis" / "VERSION").read_text()

    server = server_for(data_dir / "redis")
    assert noted == f"{dotted(server.version)}\n{server.path}\n"


def test_an_activated_environment_with_an_older_server_does_not_lock_the_data(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_running(data_dir)
    assert stop_if_unused(data_dir)
    older = data_dir / "environment" / "redis-server"
    older.parent.mkdir()
    older.write_text("#!/bin/sh\necho Redis server v=6.2.0\n")
    older.chmod(0o755)

    monkeypatch.setenv("PATH", str(older.parent), prepend=os.pathsep)
    ensure_running(data_dir)

    assert starts_of_server(data_dir) == 2


async def test_what_any_server_here_has_written_is_read_again(data_dir: Path) -> None:
    for number, server in enumerate(find_servers()):
        data = data_dir / str(number)
        writer = await RedisClient.open(url=None, data_dir=data, server=server.path)
        await writer.command("SET", "key", "kept")
        await writer.close()

        reader = await RedisClient.open(url=None, data_dir=data)
        kept = await reader.command("GET", "key")
        await reader.close()

        assert kept == b"kept", server


def test_a_named_server_is_the_one_that_is_started(data_dir: Path) -> None:
    mine = shutil.copy(server_for(data_dir).path, data_dir / "mine")

    ensure_running(data_dir, server=str(mine))

    assert (data_dir / "redis" / "VERSION").read_text().endswith(f"\n{mine}\n")


async def test_the_server_stays_while_a_client_is_connected(
    data_dir: Path, embedded_door: RedisClient
) -> None:
    await embedded_door.command("PING")

    stopped = stop_if_unused(data_dir)

    assert not stopped
    assert await embedded_door.command("PING") == b"PONG"
    assert starts_of_server(data_dir) == 1


async def test_the_last_one_out_turns_off_the_light_and_nothing_is_lost(data_dir: Path) -> None:
    first, last = [await RedisClient.open(url=None, data_dir=data_dir) for _ in range(2)]
    await first.command("SET", "key", "kept")
    socket = data_dir / "redis" / "redis.sock"

    await first.close()
    there_for_the_last = socket.exists()
    await last.close()

    assert there_for_the_last
    assert not socket.exists()
    client = await RedisClient.open(url=None, data_dir=data_dir)
    assert await client.command("GET", "key") == b"kept"
    await client.close()


def test_an_unused_server_can_be_stopped(data_dir: Path) -> None:
    ensure_running(data_dir)

    stopped = stop_if_unused(data_dir)

    assert stopped
    assert not (data_dir / "redis" / "redis.sock").exists()


def test_stopping_a_server_that_does_not_run_does_nothing(data_dir: Path) -> None:
    assert not stop_if_unused(data_dir)


def test_a_data_directory_that_cannot_be_made_is_one_clear_line(data_dir: Path) -> None:
    (data_dir / "file").write_text("")

    with pytest.raises(RedisRefused, match=r"Cannot keep Redis data in .*file.*CRAWL_DATA"):
        ensure_running(data_dir / "file")
