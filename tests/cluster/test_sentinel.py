"""Sentinels: the master they name is found at every connect, also after a failover in a crawl."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from crawlproj.errors import BadSetting, RedisRefused, RedisUnreachable
from crawlproj.redisio.client import RedisClient
from tests.cluster.conftest import StartCrawl
from tests.cluster.judge import assert_each_page_once
from tests.cluster.servers import Sentinels
from tests.ports import HeldPorts

OpenClient = Callable[..., Awaitable[RedisClient]]


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    with HeldPorts() as ports:
        made = Sentinels(tmp_path_factory.mktemp("sentinel"), ports)
        try:
            yield made.start()
        finally:
            made.kill()


async def test_the_master_is_used_and_found_again_after_a_failover_in_a_crawl(
    sentinels: Sentinels, open_client: OpenClient, start_crawl: StartCrawl
) -> None:
    client = await open_client(sentinels.url)
    await client.command("SET", "kept", "1")
    crawl = start_crawl(sentinels.url, "--simweb", "6", "--parsers", "1")
    crawl.wait_for_requests(40)
    _, replica = sentinels.servers

    sentinels.kill_master()
    kept = await client.command("GET", "kept")

    assert kept == b"1"
    assert replica.info("role") == "master"
    assert_each_page_once(crawl)


async def test_a_master_that_no_sentinel_knows_is_an_error(sentinels: Sentinels, tmp_path: Path) -> None:
    with pytest.raises(RedisUnreachable, match="No master found for 'other'"):
        await RedisClient.open(url=sentinels.url.replace("/crawl/", "/other/"), data_dir=tmp_path)


async def test_the_first_answer_counts_though_a_sentinel_is_dead_and_one_hangs(
    sentinels: Sentinels, tmp_path: Path
) -> None:
    port = sentinels.sentinels[0].port
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        hosts = f"127.0.0.1:1,127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{port}"
        url = f"redis+sentinel://:secret@{hosts}/crawl/0?sentinel_password=secret"

        client = await RedisClient.open(url=url, data_dir=tmp_path)

        assert await client.command("PING") in (b"PONG", "PONG")
        await client.close()


@pytest.mark.parametrize(
    ("password", "wrong"),
    [("no", "WRONGPASS"), ("", "Authentication")],
    ids=["wrong", "none"],
)
async def test_sentinels_that_refuse_the_password_are_named(
    sentinels: Sentinels, tmp_path: Path, password: str, wrong: str
) -> None:
    url = sentinels.url.replace("sentinel_password=secret", f"sentinel_password={password}")

    with pytest.raises(RedisRefused, match=rf"The Sentinel at 127.*{wrong}.*Check sentinel_password"):
        await RedisClient.open(url=url, data_dir=tmp_path)


async def test_a_server_that_is_no_sentinel_is_named(sentinels: Sentinels, tmp_path: Path) -> None:
    [server, *_] = (one for one in sentinels.servers if one._process is not None)
    url = f"redis+sentinel://127.0.0.1:{server.port}/crawl?sentinel_password=secret"

    with pytest.raises(RedisRefused, match=rf"The server at 127.0.0.1:{server.port} is not a Sentinel"):
        await RedisClient.open(url=url, data_dir=tmp_path)


async def test_sentinels_that_do_not_answer_are_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RedisUnreachable, match=r"the Sentinel at 127\.0\.0\.1:1: Error 111"):
        await RedisClient.open(url="redis+sentinel://127.0.0.1:1,127.0.0.1:2/crawl", data_dir=tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://127.0.0.1:1",
        "redis+sentinel://127.0.0.1:1/",
        "redis+cluster://127.0.0.1:1/3",
        "redis+cluster://",
        "redis+cluster://127.0.0.1:no",
    ],
)
async def test_a_wrong_url_is_refused_with_the_forms_there_are(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"redis\+sentinel://HOST:PORT,HOST:PORT/MASTER/DB"):
        await RedisClient.open(url=url, data_dir=tmp_path)
