"""The web page in a real browser: what a person without a terminal does with it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path

import pytest
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError

from crawlproj.config import Config
from crawlproj.download import errors as download_errors
from crawlproj.download import guard, wire
from crawlproj.download.endings import error_name
from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.records import Candidate
from crawlproj.model.run import RunState
from crawlproj.pages.deadletters import DeadLetter
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.runs import Run
from crawlproj.runs.reasons import _REMEDIES
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.browser import Browser
from tests.e2e.conftest import EchoServer, wait_until
from tests.e2e.server import TOKEN, Server, Site, site_in
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

#: Titles of pages that want to be more than text.
HOSTILE = {
    "/script": "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'>",
    "/override": "invoice\u202efdp.exe",
    "/escape": "\x1b[31mred\x1b[0m",
    "/long": "W" * 1_000_000,
    "/arabic": "منارة البحر",
}
#: All views, and what is there once one is drawn.
VIEWS = ("", "jobs/{job}", "jobs/{job}/pages", "jobs/{job}/domains", "jobs/{job}/deadletters", "machines")
_CONTENT = "tbody tr, .pages li, .empty, .panel [role=status]"
IS_DRAWN = f"document.querySelector('main h1') && document.querySelector('{_CONTENT}')"
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
    # What the last test has shown asks its server for news, which may be gone.
    browser.leave()
    browser.errors.clear()
    yield browser
    assert browser.errors == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="module")
def server(site: Site, browser: Browser) -> Iterator[Server]:
    with HeldPorts() as ports:
        # It is restarted at the same one.
        yield site.serve("--port", str(ports.hold()))


@pytest.fixture
def simweb(tmp_path: Path) -> Iterator[SimwebProcess]:
    """A web whose crawl is not over before the test has looked at it."""
    with SimwebProcess(WorldSpec.calm(domains=4, pages_per_domain=4000), tmp_path) as simweb:
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
    page.wait_for("document.querySelector('.chart path').getAttribute('d').includes('H')")
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
    server.wait_until_unused("watched")

    # Nothing is in the page alone.
    page.reload()
    shows_state(page, "stopped")
    page.open(address(server))
    page.wait_for("document.querySelector('tbody')?.innerText.includes('watched')")


def test_the_focus_of_one_who_is_faster_than_the_page_stays(server: Server, page: Browser) -> None:
    with page.slow("*/static/app.js"):
        page.open(address(server))
        page.tab_to(".brand")

    page.wait_for("document.querySelector('#f-seeds')")
    assert page.evaluate("document.activeElement.className") == "brand"


def test_a_crawl_goes_beyond_its_limit_gets_seeds_and_is_deleted_with_care(
    site: Site, server: Server, simweb: SimwebProcess, page: Browser
) -> None:
    first = simweb.seeds()[0]
    server.post("/api/jobs", {"name": "grown", "seeds": first, "max_pages": 3, "mode": "single"})
    server.wait_for_state("grown", "stopped")
    page.open(address(server, "jobs/grown"))

    button(page, "Resume")
    page.wait_for("document.querySelector('#new-limit')?.value === '6'")
    page.click("dialog button.main")
    wait_until(lambda: server.get("/api/jobs/grown")["pages_stored"] >= 6, "it fetches more")
    server.wait_for_state("grown", "stopped")

    button(page, "Add seeds")
    page.wait_for("document.querySelector('dialog[open] textarea')")
    page.type(f"{first}unseen http://10.0.0.1/")
    page.click("dialog button.main")
    page.wait_for("document.querySelector('dialog[open]')?.innerText.includes('1 new')")
    assert "10.0.0.1 is private" in page.text("dialog[open]")
    page.click("dialog button.main")
    server.wait_for_state("grown", "stopped")
    server.wait_until_unused("grown")

    button(page, "Delete")
    page.click("#with-pages")
    page.click("#typed")
    page.type("grow")
    assert page.evaluate("document.querySelector('dialog button.main').disabled")
    page.type("n")
    page.click("dialog button.main")
    page.wait_for("location.hash === '#/'")
    page.wait_for("document.querySelector('tbody tr, .empty')?.checkVisibility()")
    assert "grown" not in page.text("main")
    assert server.send("GET", "/api/jobs/grown").status == 404
    assert not (site.data / "runs" / "grown").exists()


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
    with urllib.request.urlopen(link, timeout=PATIENCE_S) as answer:
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

    for view in VIEWS:
        page.open(address(server, view.format(job=read_job)))
        page.wait_for(IS_DRAWN)
        assert page.evaluate("document.documentElement.scrollWidth") == 360, view
        wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
        assert page.evaluate(wide) == 0, view

    # The menu opens within the screen.
    page.open(address(server, f"jobs/{read_job}"))
    page.click(".menu summary")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert sum(page.evaluate(ground)) > 600
    page.prefer(color_scheme="dark")
    assert sum(page.evaluate(ground)) < 150


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(server: Server, page: Browser, read_job: str, scheme: str) -> None:
    axe = (files("axe_core_python") / "axe.min.js").read_text("utf-8")
    found = {}
    page.prefer(color_scheme=scheme)

    for view in VIEWS:
        page.open(address(server, view.format(job=read_job)))
        page.wait_for(IS_DRAWN)
        page.evaluate(axe + "; 0")
        violations = page.evaluate(
            "axe.run().then(({violations}) => violations"
            ".filter(({impact}) => ['serious', 'critical'].includes(impact))"
            ".map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html).join(' ').slice(0, 500)}`))"
        )
        found |= {view: violations} if violations else {}

    assert found == {}


def test_the_first_view_is_small_and_drawn(server: Server, page: Browser) -> None:
    page.received.clear()
    page.open(address(server))
    page.wait_for("document.querySelector('tbody tr, .empty')?.innerText")

    assert sum(page.received.values()) < 100_000
    # Asked for each time, so that files of two versions never meet.
    assert server.send("GET", "/static/app.js").headers["Cache-Control"] == "no-cache"
    # benchmarks/bench_serve.py measures how soon that is.
    page.wait_for("performance.getEntriesByName('first-contentful-paint').length")


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


def test_a_token_is_asked_for_and_kept(site: Site, page: Browser, read_job: str, tmp_path: Path) -> None:
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

    # A link has no token, so the page asks for one that is good for one download.
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.open(address(server, f"jobs/{read_job}"))
    page.click(".menu summary")
    page.click("[data-format=jsonl]")
    [saved] = wait_until(lambda: list(tmp_path.glob("*.jsonl")), "the browser has saved the file")
    assert len(saved.read_bytes().splitlines()) == len(HOSTILE) + 1
    given = server.send("POST", f"/api/jobs/{read_job}/export-link", {}, Authorization=f"Bearer {TOKEN}").json
    assert [server.send("GET", given["url"]).status for _ in range(2)] == [200, 410]
    server.kill()


def test_every_failure_has_an_explanation(server: Server, page: Browser) -> None:
    kinds = [kind for module in (download_errors, guard, wire) for kind in vars(module).values()]
    errors = {
        error_name(kind.__new__(kind))
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, DownloadFailedError | DownloadTimeoutError)
    }
    assert {"no_answer", "address_refused", "bad_response", "failed"} <= errors
    # Those, and all that the terminal explains.
    errors |= set(_REMEDIES)
    page.open(address(server))
    page.wait_for("document.querySelector('#f-seeds')")

    unexplained = page.evaluate(
        f"import('/static/advice.js').then(({{adviceFor}}) => {json.dumps(sorted(errors))}"
        ".filter(error => !adviceFor(error)[0]))"
    )

    assert unexplained == []


def test_a_problem_is_shown_once_and_a_note_is_none(server: Server, page: Browser) -> None:
    job = {
        "state": "failed",
        "reason": "No room.",
        "problems": [{"what": "No room.", "level": "wrong"}, {"what": "Two parked.", "level": "note"}],
    }
    page.open(address(server))
    page.wait_for("document.querySelector('#f-seeds')")

    shown = page.evaluate(
        f"import('/static/state.js').then(({{wellness}}) => wellness({json.dumps(job)}))",
    )

    assert (shown["text"], shown["wrong"]) == ("Failed", 1)


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


async def keep_job(data: Path) -> None:
    """Make a paused run with a parked domain and a dead letter, as a bad day leaves it."""
    config = Config(data=data)
    client = await RedisClient.connect(config)
    run = await Run.open(client, "kept", partitions=1)
    frontier = Frontier.of(run, config)
    await frontier.admit([Candidate("http://bad.test/"), Candidate("http://good.test/")])
    hold = await frontier.acquire(0, "a", ttl_ms=1, delay_ms=1000, delays_ms={})
    assert isinstance(hold, Hold)
    await frontier.park(hold, [("bad.test", "failures", 3_600_000)])
    queue = PageQueue(client, run.name)
    await client.command("RPUSH", keys.pages(run.name), b"bad")
    await queue.heartbeat("p", 0)
    await queue.take("p", 1)
    await queue.fail("p", b"bad", DeadLetter("1:2", "http://good.test/\u202e", "<b>no</b>", "p", 7), 1)
    await queue.leave("p")
    await run.change(RunState.PAUSED)
    await client.close()


def test_what_was_given_up_is_released_and_replayed(site: Site, server: Server, page: Browser) -> None:
    asyncio.run(keep_job(site.data))
    page.open(address(server, "jobs/kept/domains?sort=failures"))
    page.wait_for("document.querySelector('.panel tbody')?.innerText.includes('parked: failed too often')")

    page.click("[aria-label='Release bad.test']")
    page.wait_for("!document.querySelector('.panel tbody').innerText.includes('parked')")
    assert server.get("/api/jobs/kept/domains?parked=true")["domains"] == []

    page.open(address(server, "jobs/kept/deadletters"))
    page.wait_for("document.querySelector('.panel tbody')?.innerText.includes('<b>no</b>')")
    page.click(".panel tbody button")
    page.wait_for("document.querySelector('.panel')?.innerText.includes('every page could be read')")
    kept = server.get("/api/jobs/kept")
    assert (kept["dead_letters"], kept["pages_queued"], kept["state"]) == (0, 1, "paused")


async def keep_night(data: Path) -> None:
    """Make a run that fetched ten pages a second for hours, while nobody was looking."""
    client = await RedisClient.connect(Config(data=data))
    run = await Run.open(client, "night", partitions=1)
    await run.change(RunState.PAUSED)
    begin_s = await server_ms(client) // 1000 - 8 * 3600
    for ran_s in range(0, 8 * 3600, 160):
        point = f"{1000 * (begin_s + ran_s)} {10 * ran_s} {9 * ran_s}"
        await client.command("HSET", keys.history("night"), ran_s, point)
    await client.close()


def test_the_chart_shows_what_a_crawl_did_before_anybody_looked(
    site: Site, server: Server, page: Browser
) -> None:
    asyncio.run(keep_night(site.data))

    page.open(address(server, "jobs/night"))

    page.wait_for("document.querySelector('.chart svg')?.ariaLabel?.includes('at most 10.0 fetched')")
    assert "8 h ago" in page.evaluate("document.querySelector('.chart').textContent")


def test_the_stream_of_a_quiet_job_stays_open(server: Server, read_job: str) -> None:
    connection = HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    connection.request("GET", f"/api/jobs/{read_job}/events")
    stream = connection.getresponse()

    # It outlives the time that other answers may take.
    lines = iter(stream.readline, b"")
    assert next(line for line in lines if line.startswith(b":")) == b": alive\n"
    connection.close()
