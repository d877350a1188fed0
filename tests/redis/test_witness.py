"""A Redis that comes back with older data is noticed, once, before anything is sent to it; no other is."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from crawlproj.errors import SetBack
from crawlproj.redisio.answers import ScriptError
from crawlproj.redisio.client import CONNECTIONS, RedisClient
from tests.patience import until
from tests.ports import HeldPorts
from tests.redis.setbacks import Backup

WITNESS = "witness"
KEY = "key"

MakeServer = Callable[..., Any]
OpenClient = Callable[[str], Awaitable[RedisClient]]


@pytest.fixture
async def open_client(tmp_path: Path) -> AsyncIterator[OpenClient]:
    opened: list[RedisClient] = []

    async def open_one(url: str) -> RedisClient:
        opened.append(await RedisClient.open(url=url, data_dir=tmp_path, wait_s=20))
        return opened[-1]

    yield open_one
    for client in opened:
        await client.close()


@pytest.fixture
def watching(client: RedisClient) -> RedisClient:
    client.watch(WITNESS)
    return client


async def write(client: RedisClient, value: str, generation: int | None = None) -> None:
    await client.run("write_fields", [KEY], ["value", value], generation=generation)


async def read(client: RedisClient) -> bytes | None:
    value: bytes | None = await client.command("HGET", KEY, "value")
    return value


async def disconnect(bystander: RedisClient) -> None:
    await bystander.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def use_all_connections(client: RedisClient) -> None:
    await asyncio.gather(*(client.command("PING") for _ in range(3 * CONNECTIONS)))


# Set back, or not


async def test_a_lost_connection_to_the_same_data_is_no_set_back(
    watching: RedisClient, bystander: RedisClient
) -> None:
    await write(watching, "before")
    await use_all_connections(watching)

    await disconnect(bystander)
    await write(watching, "after", generation=0)
    await use_all_connections(watching)

    assert watching.generation == 0
    assert await read(bystander) == b"after"


async def test_a_set_back_is_noticed_before_the_first_step_is_sent(
    watching: RedisClient, bystander: RedisClient
) -> None:
    await write(watching, "old")
    backup = await Backup.of(bystander)
    await write(watching, "lost")
    await backup.restore()

    with pytest.raises(SetBack):
        await write(watching, "late", generation=0)

    assert await read(bystander) == b"old"


async def test_a_process_that_was_told_nothing_in_the_lost_time_has_lost_nothing(
    watching: RedisClient, bystander: RedisClient
) -> None:
    await write(watching, "old")
    backup = await Backup.of(bystander)
    await write(bystander, "lost")

    await backup.restore()
    await write(watching, "late", generation=0)

    assert watching.generation == 0


async def test_steps_of_the_new_generation_pass_and_those_of_the_old_never_do(
    watching: RedisClient, bystander: RedisClient
) -> None:
    backup = await Backup.of(bystander)
    await write(watching, "lost")
    await backup.restore()
    await watching.command("PING")

    await write(watching, "new", generation=watching.generation)
    with pytest.raises(SetBack):
        await write(watching, "late", generation=0)

    assert await read(bystander) == b"new"


async def test_a_step_that_relies_on_nothing_is_simply_sent(
    watching: RedisClient, bystander: RedisClient
) -> None:
    backup = await Backup.of(bystander)
    await write(watching, "lost")
    await backup.restore()

    await write(watching, "new")

    assert await read(bystander) == b"new"


async def test_many_connections_notice_one_set_back_once(
    watching: RedisClient, bystander: RedisClient
) -> None:
    backup = await Backup.of(bystander)
    await use_all_connections(watching)
    await backup.restore()

    await use_all_connections(watching)
    await use_all_connections(watching)

    assert watching.generation == 1


async def test_every_set_back_is_noticed_also_a_second_one_to_the_same_data(
    watching: RedisClient, bystander: RedisClient
) -> None:
    backup = await Backup.of(bystander)

    for generation in range(3):
        await write(watching, "lost", generation=generation)
        await backup.restore()
        await watching.command("PING")

    assert watching.generation == 3


async def test_a_lost_connection_after_a_set_back_is_no_second_one(
    watching: RedisClient, bystander: RedisClient
) -> None:
    backup = await Backup.of(bystander)
    await use_all_connections(watching)
    await backup.restore()
    await watching.command("PING")

    await disconnect(bystander)
    await write(watching, "new", generation=1)

    assert watching.generation == 1


async def test_watching_twice_forgets_nothing(watching: RedisClient, bystander: RedisClient) -> None:
    backup = await Backup.of(bystander)
    await write(watching, "lost")
    watching.watch(WITNESS)
    await backup.restore()

    with pytest.raises(SetBack):
        await write(watching, "late", generation=0)


async def test_a_step_in_flight_while_a_real_server_is_set_back_is_not_sent_again(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory("--appendonly", "yes", "--appendfsync", "always")
    client = await open_client(server.url)
    client.watch(WITNESS)
    await write(client, "old")
    # Since Redis 7 it is one of several, in a folder.
    [file] = {*server.folder.glob("appendonly.aof"), *server.folder.glob("*/appendonly.aof.*.incr.aof")}
    shutil.copy(file, server.folder / "older")
    await write(client, "lost")

    server.pause()
    step = asyncio.create_task(write(client, "late", generation=0))
    await asyncio.sleep(0)
    server.kill()
    shutil.copy(server.folder / "older", file)
    server.start()

    with pytest.raises(SetBack):
        await step
    assert await read(client) == b"old"


async def test_a_redis_too_busy_to_be_compared_is_compared_later(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory("--lua-time-limit", "10")
    client, bystander, other = [await open_client(server.url) for _ in range(3)]
    client.watch(WITNESS)
    await client.command("PING")
    backup = await Backup.of(bystander)
    await write(client, "lost")
    await backup.restore()
    # After the restore, which has closed its connection.
    await other.command("PING")

    endless = asyncio.create_task(bystander.command("EVAL", "while true do end", 0))
    step = asyncio.create_task(write(client, "late", generation=0))
    await until(lambda: client.retry.is_waiting)
    await other.command("SCRIPT", "KILL")

    with pytest.raises(SetBack):
        await step
    with pytest.raises(ScriptError):
        await endless


async def test_a_full_redis_that_cannot_count_is_taken_for_set_back_at_the_next_break_and_no_later(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    client, bystander = [await open_client(server.url) for _ in range(2)]
    client.watch(WITNESS)
    await client.command("PING")
    await bystander.command("CONFIG", "SET", "maxmemory", "1")
    # This one is done although Redis is full.
    await client.run("hold_name", [KEY], ["me", "known", 60_000], generation=0)
    await bystander.command("CONFIG", "SET", "maxmemory", "0")

    generations = []
    for _ in range(2):
        await disconnect(bystander)
        await client.command("PING")
        generations.append(client.generation)

    assert generations == [1, 1]


# Failover


class Forwarder:
    """An address whose new connections go to the port *target*."""

    def __init__(self, target: int) -> None:
        self.target = target

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        try:
            yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self._copy(reader, onward_writer), self._copy(onward_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()


class Failover:
    """A primary and its replica, each behind a client of its own, and the address that clients use."""

    def __init__(self, primary: RedisClient, replica: RedisClient, ports: tuple[int, int]) -> None:
        self.primary, self.replica = primary, replica
        self._primary_port, self._replica_port = ports
        self.forwarder = Forwarder(self._primary_port)

    async def replicate(self) -> None:
        await self.replica.command("REPLICAOF", "127.0.0.1", self._primary_port)

        async def is_linked() -> bool:
            return b"master_link_status:up" in await self.replica.command("INFO", "replication")

        await until(is_linked)

    async def stop_replicating(self) -> None:
        await self.replica.command("REPLICAOF", "NO", "ONE")

    async def fail_over(self) -> None:
        """The replica becomes the primary; the old one has not read its data yet."""
        await self.stop_replicating()
        await self.primary.command("REPLICAOF", "127.0.0.1", 1)
        self.forwarder.target = self._replica_port


@pytest.fixture
async def failover(
    redis_server_factory: MakeServer, open_client: OpenClient, ports: HeldPorts
) -> AsyncIterator[tuple[Failover, RedisClient]]:
    """The two servers, and a client that watches through the address."""
    numbers = (ports.hold(), ports.hold())
    servers = [redis_server_factory("--port", str(number)) for number in numbers]
    pair = Failover(await open_client(servers[0].url), await open_client(servers[1].url), numbers)
    await pair.replicate()
    async with pair.forwarder.serve() as url:
        client = await open_client(url)
        client.watch(WITNESS)
        yield pair, client
        await client.close()


async def test_after_a_failover_steps_go_to_the_new_primary_and_nothing_is_taken_for_lost(
    failover: tuple[Failover, RedisClient],
) -> None:
    pair, client = failover
    await write(client, "before")
    await pair.primary.command("WAIT", 1, 5000)

    await pair.fail_over()
    await write(client, "after", generation=0)

    assert await read(pair.replica) == b"after"
    assert client.generation == 0


async def test_what_a_replica_answers_after_a_failover_is_not_believed(
    failover: tuple[Failover, RedisClient],
) -> None:
    pair, client = failover
    await write(client, "before")
    await pair.primary.command("WAIT", 1, 5000)

    await pair.fail_over()
    await write(pair.replica, "newer")

    assert await read(client) == b"newer"


async def test_a_failover_to_a_replica_that_lags_is_a_set_back(
    failover: tuple[Failover, RedisClient],
) -> None:
    pair, client = failover
    await write(client, "before")
    await pair.primary.command("WAIT", 1, 5000)
    await pair.stop_replicating()
    await write(client, "lost")

    await pair.fail_over()

    with pytest.raises(SetBack):
        await write(client, "late", generation=0)
    assert await read(pair.replica) == b"before"


async def test_a_connection_that_died_while_idle_is_replaced(client: RedisClient) -> None:
    failures = [RedisTimeoutError("Timeout reading from 127.0.0.1:6379")]

    async def attempt(answer_s: float) -> str:
        if failures:
            raise failures.pop()
        return "answer"

    assert await client.retry.until_answered(attempt) == "answer"
