"""What a server refuses, sent as bytes: nothing is created, and it stays up."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from crawlproj.redisio import embedded
from tests.e2e.conftest import ask_redis, wait_until
from tests.e2e.server import Server, Site, site_in
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.e2e
TOKENS = {"CRAWL_API_TOKENS": "read reader, write writer"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("refusals")) as site:
        yield site


@pytest.fixture(scope="module")
def server(site: Site) -> Server:
    return site.serve(environment=TOKENS)


@pytest.fixture(scope="module")
def half_sent(server: Server) -> Iterator[socket.socket]:
    """A connection that has sent half a head when the first test began."""
    with closing(socket.create_connection((server.host, server.port))) as half:
        half.sendall(b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: appl")
        yield half


@pytest.fixture(scope="module")
def half_a_body(server: Server) -> Iterator[socket.socket]:
    """A connection that has sent half a body when the first test began."""
    head = f"POST /api/jobs HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nAuthorization: Bearer writer\r\n"
    with closing(socket.create_connection((server.host, server.port))) as half:
        half.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        yield half


@pytest.fixture(autouse=True)
def nothing_is_created(server: Server, half_sent: object, half_a_body: object) -> Iterator[None]:
    yield
    listed = server.send("GET", "/api/jobs", Authorization="Bearer reader")
    assert listed.json == {"jobs": [], "next": None}


def raw(server: Server, head: str, body: bytes = b"") -> bytes:
    """Send bytes, and return all that comes back."""
    with closing(socket.create_connection((server.host, server.port), PATIENCE_S)) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        parts = []
        try:
            while part := connection.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            # It has closed the connection without reading the rest.
            pass
        return b"".join(parts)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


JOB = {"seeds": "http://127.0.0.1/"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer nobody"}, 401),
        ({"Authorization": "Bearer reader"}, 403),
        ({"Authorization": "Bearer writer", "Host": "evil.example"}, 421),
        ({"Authorization": "Bearer writer", "Origin": "http://evil.example"}, 403),
        ({"Authorization": "Bearer writer", "Content-Type": "text/plain"}, 415),
    ],
)
def test_a_job_is_refused(server: Server, headers: dict[str, str], status: int) -> None:
    answer = server.send("POST", "/api/jobs", JOB, **headers)

    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["status"] == status


@pytest.mark.parametrize(
    "path",
    [
        "/api/jobs/..%2f..%2fetc",
        "/api/jobs/%2e%2e/pages",
        "/api/jobs/a%00b",
        "/api/jobs/web/pages/..%2f..%2fsecret.1",
        "/static/../access.py",
        "/static/..%2faccess.py",
        "/static/%2e%2e/%2e%2e/settings.py",
        "/api/jobs/" + "a" * 5000,
    ],
)
def test_a_path_leads_nowhere_else(server: Server, path: str) -> None:
    answer = server.send("GET", path, Authorization="Bearer reader")

    assert answer.status in (404, 422)
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (
            "POST /api/jobs HTTP/1.1\nHost: localhost\nAuthorization: Bearer writer\nContent-Length: 3000000",
            {413},
        ),
        ("POST /api/jobs HTTP/1.1\nHost: localhost\nAuthorization: Bearer writer\nContent-Length: -1", {400}),
        ("GET /api/jobs HTTP/1.1\nAuthorization: Bearer reader\nConnection: close", {400}),
        ("GET /api/jobs HTTP/1.1\nHost: localhost\nHost: evil.example\nConnection: close", {400}),
        ("GET /api/jobs HTTP/1.0\nAuthorization: Bearer reader", {421}),
        ("nonsense", {400}),
        (f"GET /api/jobs HTTP/1.1\nHost: localhost\nConnection: close\nX: {'x' * 100_000}", {0, 400, 401}),
    ],
)
def test_a_head_that_is_wrong_is_refused(server: Server, head: str, statuses: set[int]) -> None:
    answer = raw(server, head)

    assert status_of(answer) in statuses
    assert not answer or b"\r\ncontent-type: application/problem+json\r\n" in answer


@pytest.mark.parametrize("cursor", ["x", "1", "%C2%B2:a", "9" * 16 + ":a"])
def test_a_cursor_that_is_not_ours_is_refused(server: Server, cursor: str) -> None:
    answer = server.send("GET", f"/api/jobs?cursor={cursor}", Authorization="Bearer reader")

    assert answer.status == 422
    assert answer.json["errors"][0]["remedy"]


def test_a_body_that_is_too_long_is_refused_however_it_is_sent(server: Server) -> None:
    head = (
        "POST /api/jobs HTTP/1.1\nHost: localhost\nAuthorization: Bearer writer\n"
        "Content-Type: application/json\nTransfer-Encoding: chunked"
    )
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    assert status_of(raw(server, head, chunk * 40)) in (413, 0)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{}" * 10, b"{}", b'{"seeds": "a.org", "sedes": 1}']
)
def test_a_body_that_is_no_job_is_refused_with_its_problems(server: Server, body: bytes) -> None:
    answer = server.send(
        "POST", "/api/jobs", body, Authorization="Bearer writer", Content_Type="application/json"
    )

    assert answer.status == 422
    assert answer.json["errors"]
    assert all(error["remedy"] for error in answer.json["errors"])
    assert {error["field"] for error in answer.json["errors"]} <= {"body", "seeds", "sedes"}


@pytest.mark.parametrize("path", ["", "/none/seeds", "/none/release", "/none/deadletters/replay"])
@pytest.mark.parametrize("field", ["seeds", "name", "domains", "reason", "ids", "\\ud800"])
def test_half_a_character_is_refused(server: Server, path: str, field: str) -> None:
    body = f'{{"{field}": ["\\ud800"]}}'.encode()

    answer = server.send(
        "POST", f"/api/jobs{path}", body, Authorization="Bearer writer", Content_Type="application/json"
    )

    assert answer.status == 422
    assert "half a character" in answer.json["errors"][0]["problem"]


@pytest.mark.parametrize("body", [b"\x1f\x8b\x08", b"[" * 100_000, b'{"max_pages": ' + b"9" * 5000 + b"}"])
def test_a_body_that_cannot_be_read_is_called_so(server: Server, body: bytes) -> None:
    answer = server.send(
        "POST", "/api/jobs", body, Authorization="Bearer writer", Content_Type="application/json"
    )

    assert (answer.status, answer.json["detail"]) == (400, "The body cannot be read as JSON.")


def test_private_addresses_and_files_are_refused_field_by_field(server: Server) -> None:
    seeds = ["http://10.0.0.1/", "http://169.254.169.254/", "/etc/passwd", "file:///etc/passwd"]

    answer = server.send("POST", "/api/jobs", {"seeds": seeds}, Authorization="Bearer writer")

    assert answer.status == 422
    assert [error["value"] for error in answer.json["errors"]] == seeds
    assert {error["field"] for error in answer.json["errors"]} == {"seeds"}


def test_a_wrong_method_names_the_right_ones(server: Server) -> None:
    answer = server.send("PUT", "/api/jobs", {}, Authorization="Bearer writer")

    assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST")


def test_another_machine_is_not_served_without_tokens(site: Site) -> None:
    with pytest.raises(AssertionError, match="needs tokens"):
        site.serve("--host", "0.0.0.0")


def test_a_redis_that_cannot_be_used_is_one_line(site: Site) -> None:
    with pytest.raises(
        AssertionError, match=r"^crawlproj serve: Redis at .* Start it, or set REDIS_URL.*$"
    ) as ended:
        site.serve(REDIS_URL=f"unix://{site.data}/none.sock")

    assert "Traceback" not in str(ended.value)


def test_a_load_balancer_learns_in_time_that_redis_does_not_answer(site: Site, server: Server) -> None:
    info = ask_redis(embedded.ensure_running(site.data), "INFO", "server").decode()
    redis = int(re.findall(r"^process_id:(\d+)", info, re.MULTILINE)[0])

    os.kill(redis, signal.SIGSTOP)
    try:
        silent = server.send("GET", "/api/health", Authorization="Bearer reader")
    finally:
        os.kill(redis, signal.SIGCONT)

    assert (silent.status, silent.json["status"]) == (503, "unwell")

    def is_well() -> bool:
        return server.send("GET", "/api/health", Authorization="Bearer reader").status == 200

    # It may have connections to open again, and answers within two seconds either way.
    wait_until(is_well, "it is well again")


def test_half_a_request_is_disconnected(half_sent: socket.socket) -> None:
    half_sent.settimeout(PATIENCE_S)

    assert half_sent.recv(1000) == b""


def test_half_a_body_is_refused(half_a_body: socket.socket) -> None:
    half_a_body.settimeout(PATIENCE_S)

    answer = half_a_body.recv(1000)

    assert status_of(answer) == 408, answer
