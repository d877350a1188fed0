"""The web page in a real browser: what a person without a terminal does with it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.browser import Browser
from tests.e2e.conftest import PATIENCE_S, EchoServer, wait_until
from tests.e2e.server import TOKEN, Server, Site, site_in

pytestmark = pytest.mark.e2e

#: Titles of pages that want to be more than text.
HOSTILE = {
    "/script": "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'>",
    "/override": "invoice\u202efdp.exe",
    "/escape": "\x1b[31mred\x1b[0m",
    "/long": "W" * 1_000_000,
    "/arabic": "منارة البحر",
}
#: What the page shows of them.
SHOWN = {
    "/script": HOSTILE["/script"],
    "/override": "invoice⟨U+202E⟩fdp.exe",
    "/arabic": HOSTILE["/arabic"],
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as window:
        yield window


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    """A window as a person opens it; what it logs as an error fails the test."""
    browser.resize(1280, 900)
    browser.prefer(color_scheme="light")
    browser.errors.clear()
    yield browser
    assert browser.errors == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="module")
def server(site: Site, browser: Browser) -> Server:
    return site.serve()


@pytest.fixture
def simweb(tmp_path: Path) -> Iterator[SimwebProcess]:
    """A web whose crawl is not over before the test has looked at it."""
    with SimwebProcess(WorldSpec.calm(domains=4, pages_per_domain=400), tmp_path) as simweb:
        yield simweb


def address(server: Server, view: str = "") -> str:
    return f"http://{server.host}:{server.port}/#/{view}"


@pytest.fixture(scope="module")
def read_job(server: Server) -> str:
    """The name of a completed crawl of pages with hostile titles."""
    echo = EchoServer("127.0.0.77")
    links = "".join(f'<a href="{path}">{path}</a> ' for path in HOSTILE)
    echo.answers["/"] = [html("Home", f"<p>Where the lighthouse keeper lives.</p>{links}")]
    for path, title in HOSTILE.items():
        text = (
            "<p>The lighthouse of this page turns slowly above the rocks, and nobody is there to see it.</p>"
        )
        echo.answers[path] = [html(title.replace("&", "&amp;").replace("<", "&lt;"), text)]
    server.post("/api/jobs", {"name": "hostile", "seeds": echo.url, "shards": 1})
    server.wait_for_state("hostile", "completed")
    echo.stop()
    return "hostile"


def html(title: str, body: str) -> tuple[int, dict[str, str], bytes]:
    document = f"<!doctype html><html lang=en><title>{title}</title><body>{body}</body></html>"
    return 200, {"Content-Type": "text/html; charset=utf-8"}, document.encode()


def number(page: Browser, label: str) -> int:
    """Return a figure of the overview by its label."""
    found = page.evaluate(
        f"[...document.querySelectorAll('.step dt')].find(e => e.firstChild.data === {json.dumps(label)})"
        "?.nextElementSibling.textContent"
    )
    return int(found.replace(",", ""))


def button(page: Browser, label: str) -> None:
    """Press a button by its label."""
    found = f"buttons.find(e => e.textContent === {json.dumps(label)} && e.checkVisibility())"
    page.wait_for(
        f"(buttons => {found}?.toggleAttribute('data-here'))([...document.querySelectorAll('button')])"
    )
    page.click("[data-here]")
    page.evaluate("document.querySelector('[data-here]')?.removeAttribute('data-here')")


def shows_state(page: Browser, word: str) -> None:
    page.wait_for(f"document.querySelector('.title .chip')?.innerText.includes({json.dumps(word)})")


def test_a_crawl_is_started_by_keyboard_watched_and_steered(
    server: Server, simweb: SimwebProcess, page: Browser
) -> None:
    page.open(address(server))
    page.tab_to("#f-seeds")
    page.type(", ".join(simweb.seeds()))
    page.tab_to("[name=scope]")
    page.press("ArrowDown")
    page.tab_to("details.more summary")
    page.press("Enter")
    page.tab_to("#f-name")
    page.type("watched")
    page.tab_to("form.new button.main")
    page.press("Enter")
    page.wait_for("location.hash === '#/jobs/watched'")

    # The numbers move by themselves.
    shows_state(page, "running")
    page.wait_for("document.querySelector('.step')")
    wait_until(lambda: number(page, "Fetched") > 0, "pages are fetched")
    seen = number(page, "Fetched")
    wait_until(lambda: number(page, "Fetched") > seen, "more pages are fetched")
    page.wait_for("document.querySelector('.chart path').getAttribute('d').includes('L')")
    page.wait_for("document.querySelector('[aria-labelledby=processes-title]').innerText.includes('shard')")

    button(page, "Pause")
    shows_state(page, "paused")
    button(page, "Resume")
    shows_state(page, "running")

    page.evaluate("document.getElementById('shards').select()")
    page.click("#shards")
    page.evaluate("document.getElementById('shards').select()")
    page.type("3")
    page.press("Enter")
    wait_until(lambda: server.get("/api/jobs/watched")["shards"] == 3, "there are three shards")

    button(page, "Stop")
    page.wait_for("document.querySelector('dialog[open]')")
    page.click("dialog button.main")
    shows_state(page, "stopped")
    wait_until(lambda: not server.get("/api/jobs/watched")["processes"], "its processes have left")

    # Nothing is in the page alone.
    page.reload()
    shows_state(page, "stopped")
    page.open(address(server))
    page.wait_for("document.querySelector('tbody')?.innerText.includes('watched')")


def test_problems_are_shown_at_their_field(server: Server, page: Browser) -> None:
    page.open(address(server))
    page.click("#f-seeds")
    page.type("example.org http://")
    page.click("#f-max_pages")
    page.type("-3")
    page.click("form.new button.main")

    page.wait_for("document.querySelector('#f-max_pages-problem').checkVisibility()")
    assert page.evaluate("document.getElementById('f-max_pages').getAttribute('aria-invalid')") == "true"
    page.evaluate("document.getElementById('f-max_pages').select()")
    page.type("3")
    page.click("form.new button.main")
    page.wait_for("document.getElementById('f-seeds-problem').innerText.includes('http://')")
    assert page.evaluate("document.activeElement.id") == "f-seeds"
    # The browser itself logs each refusal.
    page.errors[:] = [error for error in page.errors if "422" not in error]


def test_stored_text_is_searched_read_and_exported(server: Server, page: Browser, read_job: str) -> None:
    page.open(address(server, f"jobs/{read_job}/pages"))
    page.wait_for(f"document.querySelectorAll('.pages li').length === {len(HOSTILE) + 1}")

    page.click("#p-q")
    page.type("keeper lives")
    page.press("Enter")
    page.wait_for("document.querySelectorAll('.pages li').length === 1")
    assert page.text(".pages mark").lower() == "keeper lives"

    page.click(".page-title")
    page.wait_for("document.querySelector('.page .text')?.innerText.includes('keeper lives')")

    page.click(".menu summary")
    link = page.evaluate("document.querySelector('[data-format=jsonl]').href")
    with urllib.request.urlopen(link, timeout=30) as answer:
        assert len(answer.read()) > 100


def test_what_pages_say_is_shown_as_text(server: Server, page: Browser, read_job: str) -> None:
    page.open(address(server, f"jobs/{read_job}/pages"))
    page.wait_for(f"document.querySelectorAll('.pages li').length === {len(HOSTILE) + 1}")

    titles = page.evaluate("[...document.querySelectorAll('.page-title')].map(e => e.textContent)")
    assert set(SHOWN.values()) <= set(titles)
    assert any(title.startswith("WWW") for title in titles)
    assert not any("\x1b" in title or "\u202e" in title or len(title) > 200 for title in titles)
    assert page.evaluate("document.querySelector('.panel script, .panel img')") is None
    assert page.evaluate("window.broken") is None
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.page-title bdi')).unicodeBidi") == "isolate"
    )


def test_every_view_fits_a_phone_and_is_dark_at_night(server: Server, page: Browser, read_job: str) -> None:
    page.resize(360, 740)

    for view in ("", f"jobs/{read_job}", f"jobs/{read_job}/pages", f"jobs/{read_job}/domains", "machines"):
        page.open(address(server, view))
        page.wait_for(
            "document.querySelector('main h1') && document.querySelector('tbody tr, .pages li, .empty')"
        )
        assert page.evaluate("document.documentElement.scrollWidth") == 360, view

    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert sum(page.evaluate(ground)) > 600
    page.prefer(color_scheme="dark")
    assert sum(page.evaluate(ground)) < 150


def test_the_first_view_is_small_and_quick(server: Server, page: Browser) -> None:
    page.received.clear()
    page.open(address(server))
    page.wait_for("document.querySelector('tbody tr, .empty')?.innerText")

    assert sum(page.received.values()) < 100_000
    # Asked for each time, so that files of two versions never meet.
    assert server.send("GET", "/static/app.js").headers["Cache-Control"] == "no-cache"
    drawn_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    # Half a second on a machine that does nothing else; the tests share theirs.
    assert drawn_ms < 3000


def test_a_lost_connection_is_shown_and_a_restarted_server_found(
    site: Site, server: Server, page: Browser
) -> None:
    page.open(address(server))
    page.wait_for("document.querySelector('tbody tr, .empty')?.innerText")

    server.kill()
    page.wait_for("!document.getElementById('lost').hidden")
    assert "Connection lost, trying again" in page.text("#lost")

    site.serve("--port", str(server.port))
    page.wait_for("document.getElementById('lost').hidden")
    page.errors.clear()


def test_a_token_is_asked_for_and_kept(site: Site, page: Browser) -> None:
    server = site.serve(CRAWL_API_TOKENS=f"write {TOKEN}")
    page.open(address(server))
    page.wait_for("document.querySelector('dialog[open]')")
    page.type("wrong")
    page.press("Enter")
    page.wait_for("document.querySelector('dialog[open]')?.innerText.includes('refused')")
    page.type(TOKEN)
    page.press("Enter")
    page.wait_for("document.querySelector('tbody tr, .empty')?.innerText")

    page.reload()
    page.wait_for("document.querySelector('tbody tr, .empty')?.innerText")
    assert page.evaluate("document.querySelector('dialog')") is None
    page.errors[:] = [error for error in page.errors if "401" not in error]
    server.kill()


def test_domains_are_found_by_name(server: Server, page: Browser, read_job: str) -> None:
    page.open(address(server, f"jobs/{read_job}/domains"))
    page.wait_for("document.querySelector('.panel tbody')?.innerText.includes('127.0.0.77')")

    page.click("#d-q")
    page.type("0.0.8")
    page.wait_for("document.querySelector('.panel')?.innerText.includes('No such domain')")
    page.evaluate("document.getElementById('d-q').select()")
    page.type("0.0.7")
    page.wait_for("document.querySelector('.panel tbody')?.innerText.includes('127.0.0.77')")
    page.click("#d-parked")
    page.wait_for("document.querySelector('.panel')?.innerText.includes('No such domain')")


def test_the_stream_of_a_quiet_job_stays_open(server: Server, read_job: str) -> None:
    connection = HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    connection.request("GET", f"/api/jobs/{read_job}/events")
    stream = connection.getresponse()

    # It outlives the time that other answers may take.
    lines = iter(stream.readline, b"")
    assert next(line for line in lines if line.startswith(b":")) == b": alive\n"
    connection.close()
