"""A Redis Cluster and Sentinels over TLS, with a password."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from crawlproj.errors import RedisUnreachable
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from tests.cluster.conftest import MakeCluster
from tests.cluster.servers import Sentinels
from tests.conftest import redis_server
from tests.ports import HeldPorts


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a certificate for 127.0.0.1 and its key."""
    told = subprocess.run(
        [redis_server(), "--tls-port", "0", "--port", "70000"], capture_output=True, text=True, check=False
    )
    if "Bad directive" in told.stdout + told.stderr:
        pytest.skip("this redis-server has no TLS")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=127.0.0.1",
            ),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def options_of(certificate: Path) -> list[str]:
    cert, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    return [
        *("--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert),
        *("--tls-auth-clients", "no", "--tls-replication", "yes", "--tls-cluster", "yes"),
    ]


async def test_a_cluster_over_tls(
    certificate: Path,
    make_cluster: MakeCluster,
    open_client: Callable[..., Awaitable[RedisClient]],
    tmp_path: Path,
) -> None:
    cluster = make_cluster(2, options=options_of(certificate), tls=True, password="secret")
    client = await open_client(f"{cluster.url}?ssl_ca_certs={certificate / 'cert.pem'}")
    run = await Run.open(client, "web", partitions=16)

    admitted = await Frontier(client, "web", 16).admit(Candidate(f"http://d{n}.test/") for n in range(50))

    assert (admitted.new, (await run.read_counters()).waiting) == (50, 50)
    with pytest.raises(RedisUnreachable, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
        await RedisClient.open(url=cluster.url, data_dir=tmp_path)


async def test_sentinels_over_tls(
    certificate: Path,
    open_client: Callable[..., Awaitable[RedisClient]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with HeldPorts() as ports:
        sentinels = Sentinels(tmp_path_factory.mktemp("sentinel"), ports, options_of(certificate), tls=True)
        try:
            sentinels.start()
            client = await open_client(f"{sentinels.url}&ssl_ca_certs={certificate / 'cert.pem'}")

            await client.command("SET", "key", "value")

            assert await client.command("GET", "key") == b"value"
            await client.close()
        finally:
            sentinels.kill()
