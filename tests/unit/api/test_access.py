"""Who may ask for what: refused before anything else is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from crawlproj.api.access import MOST_BODY_BYTES, Access, Rates, Tokens, is_loopback
from crawlproj.api.links import VALID_S, Links
from crawlproj.api.problems import Refused
from crawlproj.api.server import check_host
from crawlproj.config import Config
from crawlproj.errors import BadArgument, BadSetting


class Called:
    """An application that remembers the bodies it got."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive() if scope["method"] == "POST" else {"body": b""}
        self.bodies.append(message["body"])
        await PlainTextResponse("done")(scope, receive, send)


async def ask(
    access: Access,
    method: str = "GET",
    path: str = "/api/jobs",
    *,
    body: tuple[bytes, ...] = (),
    **headers: str,
) -> tuple[int, dict[str, str], Any]:
    headers = {"host": "localhost:8080", **headers}
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    parts = list(body or (b"",))
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    await access(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(message.get("body", b"") for message in sent[1:])
    is_problem = answered.get("content-type") == "application/problem+json"
    return sent[0]["status"], answered, json.loads(text) if is_problem else text


def made(app: Called, host: str = "127.0.0.1", tokens: str = "", **options: Any) -> Access:
    config = Config(api_tokens=tokens or None, **options)
    known = Tokens.of(config)
    return Access(app, config=config, host=host, tokens=known, links=Links(known.read))


@pytest.mark.parametrize(
    ("method", "authorization", "status"),
    [
        ("GET", "", 401),
        ("GET", "Bearer wrong", 401),
        ("GET", "Basic r", 401),
        ("GET", "Bearer r", 200),
        ("POST", "Bearer r", 403),
        ("DELETE", "Bearer r", 403),
        ("POST", "bearer w", 200),
        ("GET", "Bearer w", 200),
        ("GET", "Bearer \u20ac", 401),
    ],
)
async def test_a_token_is_needed_and_one_that_reads_does_not_write(
    method: str, authorization: str, status: int
) -> None:
    app = Called()

    answer = await ask(made(app, tokens="read r, write w"), method, authorization=authorization)

    assert answer[0] == status
    assert bool(app.bodies) == (status == 200)


async def test_the_page_asks_for_the_token_itself_so_it_needs_none() -> None:
    access = made(Called(), tokens="write w")

    assert (await ask(access, path="/"))[0] == 200
    assert (await ask(access, path="/static/app.js"))[0] == 200
    assert (await ask(access, path="/metrics"))[0] == 401


async def test_a_link_is_good_for_its_download_alone_and_for_a_minute() -> None:
    now_s = 1000.0
    links = Links([b"r"], lambda: now_s)
    known = Tokens.of(Config(api_tokens="read r"))
    access = Access(Called(), config=Config(), host="127.0.0.1", tokens=known, links=links)
    link, expires_s = links.make("/api/jobs/news/export", {"format": "csv"})

    async def status(path: str, method: str = "GET") -> int:
        return (await ask(access, method, path))[0]

    assert expires_s == now_s + VALID_S
    assert await status(link) == 200
    assert await status(link.replace("csv", "warc")) == 403
    assert await status(link.replace("news", "olds")) == 403
    assert await status(link + "0") == 403
    assert await status(link.partition("&signature=")[0]) == 401
    assert await status(link.partition("&expires=")[0] + "&signature=") == 403
    assert await status(link.replace("/export", "/pages")) == 401
    assert await status(link, "POST") == 401
    assert (await ask(access, path=Links([b"other"], lambda: now_s).make("/api/jobs/news/export", {})[0]))[
        0
    ] == 403
    now_s += VALID_S
    assert await status(link) == 403


async def test_a_token_that_reads_may_ask_for_a_link() -> None:
    access = made(Called(), tokens="read r")

    assert (await ask(access, "POST", "/api/jobs/news/export-link", authorization="Bearer r"))[0] == 200
    assert (await ask(access, "POST", "/api/jobs/news/export-link"))[0] == 401


@pytest.mark.parametrize(
    ("host", "given", "status"),
    [
        ("127.0.0.1", "127.0.0.1:8080", 200),
        ("127.0.0.1", "[::1]:8080", 200),
        ("127.0.0.1", "LOCALHOST", 200),
        ("127.0.0.1", "evil.example", 421),
        ("127.0.0.1", "localhost.evil.example", 421),
        ("127.0.0.1", "10.0.0.5", 421),
        ("127.0.0.1", "crawl.example.org", 200),
        ("127.0.0.1", "", 421),
        ("0.0.0.0", "10.0.0.5:8080", 200),
        ("0.0.0.0", "evil.example", 421),
    ],
)
async def test_a_name_that_is_not_ours_is_refused(host: str, given: str, status: int) -> None:
    access = made(Called(), host, api_hosts=("crawl.example.org",))

    assert (await ask(access, host=given))[0] == status


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(headers: dict[str, str]) -> None:
    app = Called()

    assert (await ask(made(app), "POST", **headers))[0] == 403
    assert app.bodies == []
    assert (await ask(made(app), "POST", origin="http://localhost:8080"))[0] == 200


async def test_a_body_is_small_and_json() -> None:
    app = Called()
    access = made(app)
    is_json = {"content_type": "application/json; charset=utf-8"}

    too_long = await ask(access, "POST", content_length=str(MOST_BODY_BYTES + 1), **is_json)
    longer_than_said = await ask(access, "POST", body=(b"x" * MOST_BODY_BYTES, b"x"), **is_json)
    not_json = await ask(access, "POST", body=(b"{}",), content_type="text/plain")
    fine = await ask(access, "POST", body=(b'{"a"', b":1}"), **is_json)

    assert [answer[0] for answer in (too_long, longer_than_said, not_json, fine)] == [413, 413, 415, 200]
    assert app.bodies == [b'{"a":1}']
    assert too_long[1]["connection"] == "close"


async def test_every_answer_has_the_headers_that_protect_the_page() -> None:
    for answer in (await ask(made(Called())), await ask(made(Called()), host="evil.example")):
        headers = answer[1]
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control")]


def test_a_client_that_asks_too_often_waits() -> None:
    now_s = 0.0
    rates = Rates(2.0, lambda: now_s)
    for _ in range(4):
        rates.check("a")

    with pytest.raises(Refused, match="Too many"):
        rates.check("a")

    rates.check("b")
    now_s = 0.6
    rates.check("a")


def test_tokens_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# ours\nread r\n\nwrite w\n")

    assert Tokens.of(Config(api_tokens="write x", api_tokens_file=str(file))) == Tokens((b"r",), (b"x", b"w"))
    with pytest.raises(BadSetting, match="cannot be read"):
        Tokens.of(Config(api_tokens_file=str(tmp_path / "none")))
    with pytest.raises(BadSetting, match="neither") as caught:
        Tokens.of(Config(api_tokens="admin secret"))
    assert "secret" not in str(caught.value)


def test_other_machines_need_a_token() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.9.9.9", "::1", "0.0.0.0", "a.org")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    check_host("127.0.0.1", has_tokens=False)
    check_host("0.0.0.0", has_tokens=True)
    with pytest.raises(BadArgument, match="tokens"):
        check_host("0.0.0.0", has_tokens=False)
