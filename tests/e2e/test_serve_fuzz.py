"""The server under requests made from its own description: no 5xx, and no answer that is not described."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from crawlproj.config import Config
from crawlproj.model.run import RunPaths
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from tests.e2e.conftest import PROJECT
from tests.e2e.server import Server, Site, site_in
from tests.unit.api.test_exports import store_items

pytestmark = pytest.mark.e2e

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: Of each operation: all of it within some seconds.
EXAMPLES = 6
#: An event stream has no end; tests/e2e/test_serve.py reads one.
schema = schemathesis.openapi.from_path(PROJECT / "docs" / "openapi.json").exclude(path_regex="/events$")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("fuzz")) as site:
        yield site


@pytest.fixture(scope="module")
def server(site: Site) -> Iterator[Server]:
    """A server that starts no jobs, since the test has the lock of the one that does."""
    site.data.mkdir()
    with (site.data / "serve.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Not silent for too long, however long the tests take: health would be 503.
        os.utime(lock.fileno(), (time.time() + 3600,) * 2)
        yield site.serve(CRAWL_API_RATE="0", CRAWL_JOBS_WAITING="50")


@pytest.fixture
async def job(site: Site, server: Server) -> AsyncIterator[str]:
    """A run with something to show, made anew for each operation: one of them deletes it."""
    client = await RedisClient.connect(Config(data=site.data))
    run = await Run.open(client, "news", partitions=4)
    await store_items(RunPaths(site.data, "news"), "p-1", '{"n":1}')
    yield run.name
    await client.close()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_no_answer_is_unknown_or_an_error_of_the_server(
    case: schemathesis.Case, server: Server, job: str
) -> None:
    if "job" in case.path_parameters and len(str(case.path_parameters["job"])) % 2:
        case.path_parameters["job"] = job

    case.call_and_validate(base_url=f"http://{server.host}:{server.port}", checks=CHECKS)
