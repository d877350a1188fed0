from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from crawlproj.config import load_config
from crawlproj.errors import BadSetting, Fenced, RedisRefused, RedisUnreachable
from crawlproj.redisio import retry, subscription
from crawlproj.redisio.answers import ScriptError
from crawlproj.redisio.client import CONNECTIONS, RedisClient
from crawlproj.redisio.connection import redact
from crawlproj.redisio.scripts import BadScript, Scripts
from tests.loopclock import LoopClock
from tests.patience import PATIENCE_S, until
from tests.ports import HeldPorts

LUA = {
    "add_one": "-- add_one: count.\n-- KEYS[1] counter  string\nreturn redis.call('INCR', KEYS[1])\n",
    "put_value": (
        "-- put_value: keep a value.\n-- KEYS[1] value  string\n-- ARGV[1] it\n"
        "redis.call('SET', KEYS[1], ARGV[1])\nreturn ARGV[1]\n"
    ),
    "refuse_epoch": (
        "-- refuse_epoch: as a script does that finds a newer owner.\n-- KEYS[1] owner  string\n"
        "return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is over')\n"
    ),
    "break_down": "-- break_down: a bug.\nreturn redis.call('NOSUCH')\n",
    "not_lua": "-- not_lua: a typing error.\nreturn return\n",
}
MakeServer = Callable[..., Any]
OpenClient = Callable[..., Awaitable[RedisClient]]


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    folder = tmp_path / "lua"
    folder.mkdir()
    for name, text in LUA.items():
        (folder / f"{name}.lua").write_text(text)
    return Scripts(folder)


@pytest.fixture
async def open_client(tmp_path: Path, scripts: Scripts) -> AsyncIterator[OpenClient]:
    opened: list[RedisClient] = []

    async def open_one(url: str, **more: Any) -> RedisClient:
        opened.append(
            await RedisClient.open(url=url, data_dir=tmp_path, scripts=scripts, **{"wait_s": 20, **more})
        )
        return opened[-1]

    yield open_one
    for client in opened:
        await client.close()


@pytest.fixture
async def scripted(open_client: OpenClient, redis_url: str) -> RedisClient:
    client = await open_client(redis_url)
    await client.command("FLUSHDB")
    return client


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("crawlproj.redisio.") and record.levelno == level
    ]


# Scripts


@pytest.mark.parametrize(
    ("argument", "arrives"),
    [
        ("caf\u00e9 \r\n$3", "caf\u00e9 \r\n$3".encode()),
        ("", b""),
        (b"\x00\xff\r\n*1", b"\x00\xff\r\n*1"),
        (2**63 - 1, b"9223372036854775807"),
        (-1, b"-1"),
        (0.1, b"0.1"),
    ],
)
async def test_every_kind_of_argument_arrives(
    client: RedisClient, argument: str | bytes | float, arrives: bytes
) -> None:
    assert await client.pipeline([("ECHO", argument), ("ECHO", "next")]) == [arrives, b"next"]


async def test_a_script_runs_by_name(scripted: RedisClient) -> None:
    assert await scripted.run("add_one", ["k"], []) == 1
    assert await scripted.run("put_value", ["v"], [b"\xff\x00"]) == b"\xff\x00"


async def test_a_script_that_redis_forgot_is_loaded_again(scripted: RedisClient) -> None:
    await scripted.run("add_one", ["k"], [])
    await scripted.command("SCRIPT FLUSH")

    assert await scripted.run("add_one", ["k"], []) == 2


async def test_many_calls_of_a_forgotten_script_are_answered_in_order(scripted: RedisClient) -> None:
    await scripted.command("SCRIPT FLUSH")

    answers = await scripted.run_many("put_value", [([f"k{n}"], [n]) for n in range(50)])

    assert answers == [str(n).encode() for n in range(50)]


async def test_no_calls_have_no_answers(scripted: RedisClient) -> None:
    assert await scripted.run_many("add_one", []) == []
    assert await scripted.pipeline([]) == []
    assert await scripted.pipeline([], transaction=True) == []


async def test_when_one_of_many_calls_fails_the_others_are_carried_out(scripted: RedisClient) -> None:
    await scripted.command("RPUSH", "list", "x")

    with pytest.raises(ScriptError, match="wrong kind of value"):
        await scripted.run_many("add_one", [(["a"], []), (["list"], []), (["b"], [])])

    assert await scripted.pipeline([("GET", "a"), ("GET", "b")]) == [b"1", b"1"]


async def test_a_wrong_number_of_keys_is_refused_before_redis_is_asked(scripted: RedisClient) -> None:
    with pytest.raises(BadScript, match=r"add_one\.lua takes 1 keys \('counter',\), not 2"):
        await scripted.run("add_one", ["a", "b"], [])

    assert await scripted.command("EXISTS", "a") == 0


async def test_a_fenced_answer_raises_fenced(scripted: RedisClient) -> None:
    with pytest.raises(Fenced, match="FENCED epoch 7 is over"):
        await scripted.run("refuse_epoch", ["k"], [7])


@pytest.mark.parametrize("name", ["break_down", "not_lua"])
async def test_a_broken_script_raises_and_is_not_repeated_for_ever(scripted: RedisClient, name: str) -> None:
    with pytest.raises(ScriptError):
        await scripted.run(name, [], [])


async def test_a_wrong_command_raises_what_redis_said(scripted: RedisClient) -> None:
    with pytest.raises(ScriptError, match="unknown command"):
        await scripted.command("NOSUCH")


# Commands


async def test_a_transaction_happens_at_once_and_answers_in_order(scripted: RedisClient) -> None:
    answers = await scripted.pipeline([("SET", "a", 1), ("INCR", "a"), ("GET", "a")], transaction=True)

    assert answers == [b"OK", 2, b"2"]


async def test_a_transaction_with_a_wrong_command_changes_nothing(scripted: RedisClient) -> None:
    with pytest.raises(ScriptError, match="unknown command"):
        await scripted.pipeline([("SET", "a", 1), ("NOSUCH",)], transaction=True)

    assert await scripted.command("EXISTS", "a") == 0


async def test_hundreds_of_calls_at_once_share_few_connections(scripted: RedisClient) -> None:
    # Not INCR: one that is not answered in time is sent again.
    answers = await asyncio.gather(*(scripted.command("ECHO", n) for n in range(300)))

    assert [int(answer) for answer in answers] == list(range(300))
    assert (await scripted.command("CLIENT LIST")).count(b"\n") <= CONNECTIONS


async def test_a_blocking_command_returns_none_when_its_time_is_up(scripted: RedisClient) -> None:
    assert await scripted.block("BLMOVE", "from", "to", "LEFT", "RIGHT", timeout_s=0.02) is None


async def test_a_blocking_command_does_not_hold_up_the_others(scripted: RedisClient) -> None:
    blocked = [
        asyncio.create_task(scripted.block("BLMOVE", f"from{n}", "to", "LEFT", "RIGHT", timeout_s=PATIENCE_S))
        for n in range(CONNECTIONS + 2)
    ]

    for n in range(len(blocked)):
        await scripted.command("RPUSH", f"from{n}", "x")

    assert await asyncio.gather(*blocked) == [b"x"] * len(blocked)


# Redis unreachable


async def test_redis_unreachable_in_the_middle_is_one_warning_and_all_calls_complete(
    redis_server_factory: MakeServer, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = redis_server_factory("--appendonly", "yes", "--appendfsync", "always")
    client = await open_client(server.url)
    await client.run("put_value", ["before"], ["kept"])

    server.kill()
    calls = [asyncio.create_task(client.run("put_value", [f"k{n}"], [n])) for n in range(40)]
    blocked = asyncio.create_task(client.block("BLMOVE", "from", "to", "LEFT", "RIGHT", timeout_s=PATIENCE_S))
    await until(lambda: client.retry.is_waiting)
    server.start()
    answers = await asyncio.gather(*calls)
    await client.command("RPUSH", "from", "x")

    assert answers == [str(n).encode() for n in range(40)]
    assert await blocked == b"x"
    assert await client.command("GET", "before") == b"kept"
    assert not client.retry.is_waiting
    [warning] = lines(caplog, logging.WARNING)
    assert warning.startswith(f"Redis at {server.socket} did not answer")
    assert warning.endswith("; retrying for up to 20 s")
    assert lines(caplog, logging.INFO) == [f"Redis at {server.socket} is back"]


async def test_a_redis_that_does_not_answer_in_time_is_asked_again(
    redis_server_factory: MakeServer,
    open_client: OpenClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = redis_server_factory()
    client = await open_client(server.url)
    monkeypatch.setattr(retry, "ANSWER_S", 0.05)

    server.pause()
    call = asyncio.create_task(client.run("put_value", ["k"], ["v"]))
    await until(lambda: client.retry.is_waiting)
    server.unpause()

    assert await call == b"v"
    [warning] = lines(caplog, logging.WARNING)
    assert "did not answer in 0.05 s" in warning


async def test_a_restart_between_two_calls_goes_unnoticed(
    redis_server_factory: MakeServer, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_server_factory()
    client = await open_client(server.url)
    await asyncio.gather(*(client.command("PING") for _ in range(20)))

    server.kill()
    server.start()

    assert await client.command("PING") == b"PONG"
    assert await asyncio.gather(*(client.command("PING") for _ in range(20))) == [b"PONG"] * 20
    assert lines(caplog, logging.WARNING) == []


async def test_redis_unreachable_for_too_long_raises(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    client = await open_client(server.url, wait_s=0.2)

    server.kill()

    with pytest.raises(RedisUnreachable, match=f"Redis at {server.socket} did not answer"):
        await client.command("PING")
    assert not client.retry.is_waiting


async def test_redis_is_waited_for_in_full_when_lost_after_a_long_silence(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    client = await open_client(server.url, wait_s=10)
    client.retry._last_answer -= 1000

    server.kill()
    call = asyncio.create_task(client.command("PING"))
    await until(lambda: client.retry.is_waiting)
    server.start()

    assert await call == b"PONG"


@pytest.mark.parametrize("how", ["script", "command", "transaction"])
async def test_a_full_redis_is_waited_for(
    redis_server_factory: MakeServer, open_client: OpenClient, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    client = await open_client(redis_server_factory().url)
    await client.command("CONFIG SET", "maxmemory", 1)
    writes: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "script": lambda: client.run("put_value", ["k"], ["v"]),
        "command": lambda: client.command("SET", "k", "v"),
        "transaction": lambda: client.pipeline([("SET", "k", "v")], transaction=True),
    }

    writing = asyncio.create_task(writes[how]())
    await until(lambda: client.retry.is_waiting)
    await client.command("CONFIG SET", "maxmemory", 0)
    await writing

    assert await client.command("GET", "k") == b"v"
    [warning] = lines(caplog, logging.WARNING)
    assert re.search(r"is full: it uses [0-9.]+ MB of 0.0 MB \(maxmemory\). Raise maxmemory", warning)


async def test_a_redis_that_is_still_loading_is_waited_for_at_the_start(
    redis_server_factory: MakeServer, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_server_factory("--appendonly", "yes", "--appendfsync", "always")
    first = await open_client(server.url)
    await first.pipeline([("SET", f"k{n}", "x" * 100) for n in range(20_000)])
    await first.close()
    server.kill()
    # Microseconds a key; every thousand keys it has time to say that it is loading, also if it is slow.
    server.start("--key-load-delay", "100")

    client = await open_client(server.url, wait_s=PATIENCE_S)

    assert await client.command("DBSIZE") == 20_000
    [warning] = lines(caplog, logging.WARNING)
    assert "LOADING" in warning


async def test_a_cancelled_caller_does_not_lose_its_call(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    client = await open_client(server.url)
    await client.run("add_one", ["k"], [])
    server.pause()

    call = asyncio.create_task(client.run("add_one", ["k"], []))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.unpause()

    async def is_carried_out() -> bool:
        return bool(await client.command("GET", "k") == b"2")

    await until(is_carried_out)


async def test_closing_waits_for_the_calls_of_cancelled_callers(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    client, other = await open_client(server.url), await open_client(server.url)
    server.pause()
    # Two round trips: Redis does not know the script yet.
    call = asyncio.create_task(client.run("put_value", ["k"], ["v"]))
    await asyncio.sleep(0)
    call.cancel()

    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    server.unpause()
    await closing

    assert await other.command("GET", "k") == b"v"


async def test_closing_leaves_no_connection(
    scripted: RedisClient, open_client: OpenClient, redis_url: str
) -> None:
    client = await open_client(redis_url)
    await asyncio.gather(*(client.command("PING") for _ in range(20)))
    await client.block("BLMOVE", "from", "to", "LEFT", "RIGHT", timeout_s=0.01)

    await client.close()

    async def only_we_are_left() -> bool:
        return bool((await scripted.command("CLIENT LIST")).count(b"\n") == 1)

    await until(only_we_are_left)


# Messages


async def test_messages_arrive_after_a_first_none(scripted: RedisClient) -> None:
    async with scripted.subscribe("a", "b") as messages:
        assert await anext(messages) is None
        await scripted.pipeline([("PUBLISH", "b", "1"), ("PUBLISH", "c", "2"), ("PUBLISH", "a", "3")])

        assert [await anext(messages), await anext(messages)] == [(b"b", b"1"), (b"a", b"3")]


async def test_a_subscription_survives_a_restart_and_says_so(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    client = await open_client(server.url)
    async with client.subscribe("a") as messages:
        await anext(messages)

        server.kill()
        missed = asyncio.create_task(anext(messages))
        await until(lambda: client.retry.is_waiting)
        server.start()

        assert await missed is None
        await client.command("PUBLISH", "a", "again")
        assert await anext(messages) == (b"a", b"again")


async def test_waiting_for_a_message_can_be_given_up_and_taken_up_again(scripted: RedisClient) -> None:
    async with scripted.subscribe("a") as messages:
        await anext(messages)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(messages)

        await scripted.command("PUBLISH", "a", "1")

        assert await anext(messages) == (b"a", b"1")


async def test_a_silent_subscription_whose_redis_hangs_is_renewed(
    redis_server_factory: MakeServer, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "SILENCE_S", 0.03)
    monkeypatch.setattr(retry, "ANSWER_S", 0.05)
    server = redis_server_factory()
    client = await open_client(server.url)
    async with client.subscribe("a") as messages:
        await anext(messages)
        server.pause()

        waiting = asyncio.create_task(anext(messages))
        await until(lambda: client.retry.is_waiting)
        server.unpause()

        assert await waiting is None


async def test_a_subscription_that_is_not_allowed_is_refused(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    admin = await open_client(server.url)
    await admin.command("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "resetchannels")
    client = await open_client(f"unix://deaf:pw@{server.socket}")

    async with client.subscribe("a") as messages:
        with pytest.raises(RedisRefused, match="NOPERM"):
            await anext(messages)


async def test_a_silent_subscription_to_a_live_redis_stays(
    scripted: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_answered(pings: int) -> bool:
        """Whether Redis saw so many PINGs, and its answers came."""
        stats: bytes = await scripted.command("INFO", "commandstats")
        return b"cmdstat_ping:calls=%d," % pings in stats and not messages._is_pinged

    clock = LoopClock(monkeypatch)
    await scripted.command("CONFIG", "RESETSTAT")
    async with scripted.subscribe("a") as messages:
        await anext(messages)
        waiting = asyncio.create_task(anext(messages))

        for silences in (1, 2, 3):
            await clock.go_to(silences * (subscription.SILENCE_S + 1))
            await until(lambda silences=silences: is_answered(silences))
        await scripted.command("PUBLISH", "a", "1")

        assert await waiting == (b"a", b"1")


# At the start


async def test_no_server_at_the_url_is_one_line_and_not_waited_for(
    open_client: OpenClient, ports: HeldPorts
) -> None:
    port = ports.hold()

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(
            RedisUnreachable, match=rf"Redis at 127\.0\.0\.1:{port} did not answer.*REDIS_URL"
        ) as caught:
            await open_client(f"redis://user:secret@127.0.0.1:{port}/0", wait_s=2 * PATIENCE_S)

    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_server_that_accepts_and_stays_silent_is_unreachable(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        with pytest.raises(RedisUnreachable, match=r"did not answer in 0\.5 s"):
            await open_client(f"redis://127.0.0.1:{port}")


async def test_something_that_is_not_redis_is_refused(open_client: OpenClient) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    with pytest.raises(RedisRefused, match=rf"127\.0\.0\.1:{port} is not Redis.*Check REDIS_URL"):
        await open_client(f"redis://127.0.0.1:{port}")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("", "NOAUTH.*Put the password into REDIS_URL"),
        (":wrong-secret@", "WRONGPASS.*Check user, password"),
        ("nobody:wrong-secret@", "WRONGPASS.*Check user, password"),
    ],
)
async def test_a_wrong_password_is_one_line_that_does_not_repeat_it(
    redis_server_factory: MakeServer,
    open_client: OpenClient,
    ports: HeldPorts,
    transport: str,
    given: str,
    complaint: str,
) -> None:
    port = ports.hold()
    server = redis_server_factory("--requirepass", "right-secret", "--port", str(port))
    url = f"redis://{given}127.0.0.1:{port}" if transport == "tcp" else f"unix://{given}{server.socket}"

    with pytest.raises(RedisRefused, match=complaint) as caught:
        await open_client(url)

    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("where", ["url", "params"])
async def test_the_right_password_opens(
    redis_server_factory: MakeServer, open_client: OpenClient, where: str
) -> None:
    server = redis_server_factory("--requirepass", "right-secret")

    if where == "url":
        client = await open_client(f"unix://:right-secret@{server.socket}")
    else:
        client = await open_client(server.url, params={"password": "right-secret", "socket_timeout": 30})

    assert await client.command("PING") == b"PONG"


async def test_the_password_can_come_from_a_file(redis_server_factory: MakeServer, tmp_path: Path) -> None:
    server = redis_server_factory("--requirepass", "right-secret")
    (tmp_path / "password").write_text("right-secret\n")

    config = load_config({"REDIS_URL": server.url, "REDIS_PASSWORD_FILE": str(tmp_path / "password")})
    client = await RedisClient.connect(config)

    assert await client.command("PING") == b"PONG"
    await client.close()


async def test_a_password_file_that_cannot_be_read_is_named(redis_url: str) -> None:
    config = load_config({"REDIS_URL": redis_url, "REDIS_PASSWORD_FILE": "nowhere"})

    with pytest.raises(BadSetting, match=r"REDIS_PASSWORD_FILE='nowhere' cannot be read: No such file"):
        await RedisClient.connect(config)


async def test_a_password_where_none_is_needed_is_refused(open_client: OpenClient, redis_url: str) -> None:
    with pytest.raises(RedisRefused, match="Check user, password"):
        await open_client(redis_url, params={"password": "secret"})


async def test_missing_rights_are_refused_at_once(
    redis_server_factory: MakeServer, open_client: OpenClient
) -> None:
    server = redis_server_factory()
    admin = await open_client(server.url)
    await admin.command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+info", "+@connection")
    client = await open_client(f"unix://reader:pw@{server.socket}")

    with pytest.raises(RedisRefused, match=r"NOPERM.*Allow this user"):
        await client.command("SET", "k", "v")


async def test_a_database_that_does_not_exist_is_refused(open_client: OpenClient, redis_url: str) -> None:
    with pytest.raises(RedisRefused, match="DB index is out of range"):
        await open_client(f"{redis_url}?db=99")


async def test_a_replica_is_refused_and_its_master_named(
    redis_server_factory: MakeServer, open_client: OpenClient, ports: HeldPorts
) -> None:
    port = ports.hold()
    server = redis_server_factory("--replicaof", "127.0.0.1", str(port))

    with pytest.raises(RedisRefused, match=rf"read-only replica.*127\.0\.0\.1:{port}"):
        await open_client(server.url)


async def test_a_redis_that_may_evict_is_warned_about(
    redis_server_factory: MakeServer, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_server_factory("--maxmemory-policy", "allkeys-lru")

    await open_client(server.url)

    [warning] = lines(caplog, logging.WARNING)
    assert "set maxmemory-policy to noeviction, not allkeys-lru" in warning


@pytest.mark.parametrize("url", ["http://secret@h", "redis://:secret@h:port", "localhost:6379"])
async def test_a_wrong_url_is_a_bad_setting(open_client: OpenClient, url: str) -> None:
    with pytest.raises(BadSetting, match=r"REDIS_URL=.* is not valid\. Write redis://HOST:PORT/DB") as caught:
        await open_client(url)

    assert "secret" not in str(caught.value)


async def test_an_unknown_option_is_a_bad_setting(open_client: OpenClient, redis_url: str) -> None:
    with pytest.raises(BadSetting, match="passwort"):
        await open_client(redis_url, params={"passwort": "x"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/2", "redis://h:1/2"),
        ("redis://:p@ss/word@h:1", "redis://***@h:1"),
        ("rediss://user:pw@h", "rediss://***@h"),
        ("unix:///s.sock?db=1&password=pw&x=1", "unix:///s.sock?db=1&password=***&x=1"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown
