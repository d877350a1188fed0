"""The ways on that sites use besides links: each waits for its turn, keeps to scope and depth, and ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.storage import read_pages

pytestmark = pytest.mark.e2e

DELAY_S = 0.2
ANSWER = tuple[int, dict[str, str], bytes]


def html(body: str, **headers: str) -> list[ANSWER]:
    return [(200, {"Content-Type": "text/html"} | headers, body.encode())]


def refresh(target: str, delay_s: int = 0) -> list[ANSWER]:
    return html(f'<meta http-equiv="refresh" content="{delay_s}; url={target}">')


def redirect(target: str, **headers: str) -> ANSWER:
    return 302, {"Location": target} | {name.replace("_", "-"): text for name, text in headers.items()}, b""


def links(*targets: str) -> list[ANSWER]:
    return html("<title>t</title>" + " ".join(f'<a href="{target}">x</a>' for target in targets))


class Crawl:
    """A finished crawl of two sites, its first seeds given: what they saw, and what was stored."""

    def __init__(
        self, scrapy: Callable[..., Any], echoes: tuple[Any, Any], folder: Path, *seeds: str, **settings: str
    ) -> None:
        self.site, self.other = echoes
        (folder / "seeds.txt").write_text("".join(f"{self.site.url}{seed}\n" for seed in seeds))
        process = scrapy(
            *("crawl", "web", f"-aseeds={folder / 'seeds.txt'}"),
            **{"DOWNLOAD_DELAY": str(DELAY_S), "CRAWL_SCOPE": "domain"} | settings,
        )
        assert process.wait() == 0, process.log[-3000:]
        self.rows = list(read_pages(folder / "data" / "runs" / "web" / "pages"))

    @property
    def asked(self) -> Counter[str]:
        return Counter(seen.path for seen in self.site.asked())

    def rows_of(self, path: str) -> list[tuple[Any, ...]]:
        """Status, depth, where from and error of the rows of a path."""
        site = self.site.url
        return [
            (row["status"], row["depth"], (row["redirected_from"] or "").removeprefix(site), row["error"])
            for row in self.rows
            if row["url"] == f"{site}{path}"
        ]

    def assert_polite(self) -> None:
        assert min(self.site.gaps_s()) >= DELAY_S


@pytest.fixture
def crawl(scrapy: Callable[..., Any], echo_at: Callable[[str], Any], tmp_path: Path) -> Callable[..., Crawl]:
    """Crawls a site whose answers are given by path; ``{other}`` in them is the URL of another site."""

    def crawl(answers: dict[str, list[ANSWER]], *seeds: str, **settings: str) -> Crawl:
        site, other = echo_at("127.0.0.1"), echo_at("127.0.0.2")
        for path, given in answers.items():
            site.answers[path] = [
                (
                    status,
                    {name: value.replace("{other}", other.url) for name, value in headers.items()},
                    body.replace(b"{other}", other.url.encode()),
                )
                for status, headers, body in given
            ]
        return Crawl(scrapy, (site, other), tmp_path, *seeds, **settings)

    return crawl


def test_refreshes_are_redirects_in_scope_depth_number_and_pace(crawl: Callable[..., Crawl]) -> None:
    chain = {f"/chain/{number}": refresh(f"/chain/{number + 1}") for number in range(12)}
    found = crawl(
        {
            "/robots.txt": [(200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /secret\n")],
            "/": refresh("/home"),
            "/home": links("/loop/a", "/chain/0", "/out", "/news", "/hidden", "/self"),
            "/loop/a": refresh("/loop/b"),
            "/loop/b": refresh("/loop/a"),
            "/out": refresh("{other}/from-a-link"),
            "/moved": refresh("{other}/from-a-seed"),
            "/news": refresh("/later", 60),
            "/later": links("/too-deep"),
            "/hidden": refresh("/secret"),
            "/self": refresh("/self", 5),
            **chain,
        },
        "/",
        "/moved",
        DEPTH_LIMIT="2",
        # The C code does not report http-equiv yet.
        CRAWL_DIRECT="0",
    )

    once = ["/", "/home", "/moved", "/loop/a", "/loop/b", "/out", "/news", "/later", "/hidden", "/self"]
    assert found.asked == Counter([*once, *(f"/chain/{number}" for number in range(6))])
    assert [seen.path for seen in found.other.asked()] == ["/from-a-seed"]
    assert found.rows_of("/") == [(200, 0, "", None)]
    assert found.rows_of("/home") == [(200, 0, "/", None)]
    assert found.rows_of("/loop/b") == [(200, 1, "/loop/a", None)]
    assert found.rows_of("/chain/5") == [(200, 1, "/chain/4", None)]
    assert found.rows_of("/later") == [(200, 2, "", None)]
    found.assert_polite()


@pytest.mark.parametrize("fast", ["0", "1"])
def test_frames_feeds_and_link_headers_are_followed_as_links(crawl: Callable[..., Crawl], fast: str) -> None:
    item = "<item><link>{}</link></item>"
    feed = f"<rss><channel>{item.format('/entry')}{item.format('{other}/entry')}</channel></rss>"
    found = crawl(
        {
            "/": links("/frames", "/feed", "/paged/1"),
            "/frames": html('<frameset cols="1,*"><frame src="/menu"><frame src="{other}/"></frameset>'),
            "/feed": [(200, {"Content-Type": "text/xml"}, feed.encode())],
            "/paged/1": html("one", Link='</paged/2>; rel="next"'),
            "/menu": links("/too-deep"),
            "/entry": links("/too-deep"),
            "/paged/2": html("two", Link='</too-deep>; rel="next"'),
        },
        "/",
        DEPTH_LIMIT="2",
        CRAWL_DIRECT=fast,
    )

    paths = ["/", "/frames", "/feed", "/paged/1", "/menu", "/entry", "/paged/2"]
    assert found.asked == Counter(paths)
    assert found.other.asked() == []
    assert [found.rows_of(path)[0][1] for path in paths] == [0, 1, 1, 1, 2, 2, 2]
    found.assert_polite()


@pytest.mark.parametrize("fast", ["0", "1"])
def test_a_redirect_that_wants_a_cookie_gets_it_once_and_no_other_url_does(
    crawl: Callable[..., Crawl], fast: str
) -> None:
    page = html("<p>text")[0]
    found = crawl(
        {
            "/": links("/cookie", "/there", "/test", "/stuck", "/bare", "/plain"),
            "/cookie": [redirect("/cookie", Set_Cookie="a=1; Path=/; HttpOnly"), *links("/after")],
            # To another URL, which sets the cookie, and back.
            "/there": [redirect("/set"), page],
            "/set": [redirect("/there", Set_Cookie="b=2; Max-Age=60")],
            # The same, and the other URL looks whether the cookie comes.
            "/test": [redirect("/tested", Set_Cookie="d=4"), page],
            "/tested": [redirect("/test")],
            "/stuck": [redirect("/stuck", Set_Cookie="c=3")],
            "/away": [redirect("{other}/", Set_Cookie="e=5")],
            "/bare": [redirect("/bare?utm_source=x")],
            "/plain": [page],
            "/after": [page],
        },
        "/",
        "/away",
        CRAWL_DIRECT=fast,
    )

    once, twice = (
        ["/", "/away", "/set", "/tested", "/bare", "/plain", "/after"],
        ["/cookie", "/there", "/test"],
    )
    assert found.asked == Counter([*once, *twice, *twice, "/stuck", "/stuck"])
    sent = [(seen.path, seen.headers["Cookie"]) for seen in found.site.log if seen.headers["Cookie"]]
    with_cookies = ["/cookie a=1", "/stuck c=3", "/test d=4", "/tested d=4", "/there b=2"]
    assert sorted(f"{path} {cookie}" for path, cookie in sent) == with_cookies
    assert [seen.headers["Cookie"] for seen in found.other.log] == [None, None]
    assert found.rows_of("/cookie") == [(200, 1, "/cookie", None)]
    assert sorted(found.rows_of("/there")) == [(200, 1, "/set", None), (302, 1, "", None)]
    assert found.rows_of("/stuck") == [(302, 1, "/stuck", "redirect_loop")]
    assert found.rows_of("/bare") == [(302, 1, "", "redirect_loop")]
    found.assert_polite()


def test_a_url_that_was_sent_back_for_a_cookie_is_asked_before_the_others_of_its_site(
    crawl: Callable[..., Crawl],
) -> None:
    many = [f"/{number}" for number in range(40)]
    found = crawl(
        {
            "/": links("/cookie", *many),
            "/cookie": [redirect("/cookie", Set_Cookie="a=1"), *html("x")],
        },
        "/",
        DOWNLOAD_DELAY="0",
        CRAWL_LEASE_BATCH="4",
    )

    order = [seen.path for seen in found.site.asked()]
    first = order.index("/cookie")
    assert order.index("/cookie", first + 1) < first + 20
    assert len(order) == 43
