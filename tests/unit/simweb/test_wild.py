"""Pages of a wild web: as real ones are, in size and shape, and still exactly what the graph says."""

from __future__ import annotations

import re
import statistics
from urllib.parse import urlsplit

import pytest

from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.model.urls import canonicalise
from crawlproj.parsing.extract import ExtractOptions, extract
from crawlproj.simweb import render
from crawlproj.simweb.graph import World
from crawlproj.simweb.page import Kind, PageSpec
from crawlproj.simweb.referee import Referee
from crawlproj.simweb.spec import WorldSpec
from crawlproj.simweb.wild import page_chars

WORLD = World(WorldSpec.wild(domains=6, pages_per_domain=20, port=80, duplicate_share=0.2))


def pages_of(world: World) -> list[PageSpec]:
    found = []
    for url in sorted(Referee(world, []).expected):
        parts = urlsplit(url)
        page = world.lookup(parts.hostname or "", parts.path + (f"?{parts.query}" if parts.query else ""))
        assert page is not None
        found.append(page)
    return found


PAGES = [page for page in pages_of(WORLD) if page.kind is Kind.PAGE]


def test_sizes_are_spread_as_those_of_real_pages_are() -> None:
    sizes = sorted(page_chars(seed * 7919) for seed in range(4000))

    assert 85_000 < statistics.median(sizes) < 105_000
    assert 130_000 < statistics.mean(sizes) < 160_000
    assert 270_000 < sizes[3600] < 340_000
    assert max(sizes) <= 1_600_000


def test_a_page_is_about_as_large_as_it_should_be() -> None:
    for page in PAGES:
        own_bytes = 12 * page.text_bytes + 90_000
        assert len(render.body(WORLD, page)) < page_chars(page.text_seed) + own_bytes


def test_half_of_the_bytes_are_scripts_and_styles_and_most_of_them_come_first() -> None:
    bodies = [render.body(WORLD, page) for page in PAGES if page.charset == "utf-8"]
    filler = [
        sum(map(len, re.findall(rb"(?s)<(?:script|style|svg).*?</(?:script|style|svg)>", b))) for b in bodies
    ]
    first = [body.index(b"<h1>") / len(body) for body in bodies]

    assert 0.4 < sum(filler) / sum(map(len, bodies)) < 0.8
    assert 0.4 < statistics.median(first) < 0.9


def test_a_page_is_the_same_every_time_and_in_every_world_of_its_spec() -> None:
    again = World(WORLD.spec)
    pages = [page for page in pages_of(again) if page.kind is Kind.PAGE]

    assert [render.body(WORLD, page) for page in PAGES] == [render.body(again, page) for page in pages]


def test_duplicates_are_the_same_bytes() -> None:
    bodies: dict[int, set[bytes]] = {}
    for page in pages_of(WORLD):
        if page.kind is Kind.DUPLICATE:
            bodies.setdefault(page.text_seed, set()).add(render.body(WORLD, page))

    assert bodies
    assert {len(same) for same in bodies.values()} == {1}


@pytest.mark.parametrize("page", PAGES[::5], ids=lambda page: page.url)
def test_a_page_links_to_what_the_graph_says_and_its_article_is_its_text(page: PageSpec) -> None:
    content_type = "text/html" + (f"; charset={page.charset}" if page.declared != "meta" else "")
    body = render.body(WORLD, page)
    fetched = Page(page.url, "web", "a.test", 0, 200, 0, 0, {"content-type": content_type}, body)

    found = extract(fetched, ExtractOptions(Config()))

    followed = {canonicalise(link.url) for link in page.links if not link.nofollow}
    assert set(found.links) == followed
    sentences = re.findall(r"<p>([^<]{60,200}?\. )", body.decode(page.charset))
    assert found.text is not None
    assert found.title
    assert page.language == "ja" or sentences[0].strip() in found.text
