"""The world is a pure function of its spec, and its HTML says what its graph says."""

from __future__ import annotations

import gzip
import hashlib
import html
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawlproj.errors import BadArgument
from crawlproj.model.urls import canonicalise, domain_of
from crawlproj.simweb.faults import ALWAYS, Fault
from crawlproj.simweb.graph import World
from crawlproj.simweb.page import Kind, PageSpec
from crawlproj.simweb.render import body
from crawlproj.simweb.sites import address_of, number_of
from crawlproj.simweb.spec import WorldSpec

ROUGH = WorldSpec.rough(seed=5, domains=12, pages_per_domain=30, port=8080, huge_bytes=50_000, trap_share=0.3)


def reachable(world: World, seeds: list[str]) -> Iterator[PageSpec]:
    """Every page but traps, found by links and redirects alone."""
    todo, seen = list(seeds), set(seeds)
    while todo:
        page = world.page(url := todo.pop())
        assert page is not None, f"{url} is linked but does not exist"
        if page.kind is Kind.TRAP:
            continue
        yield page
        targets = [link.url for link in page.links] + ([page.location] if page.location else [])
        for target in targets:
            if target not in seen:
                seen.add(target)
                todo.append(target)


def digest(spec: WorldSpec) -> str:
    world = World(spec)
    digest = hashlib.sha256()
    for page in sorted(reachable(world, world.seeds()), key=lambda page: page.url):
        digest.update(repr(page).encode() + body(world, page))
    return digest.hexdigest()


@pytest.fixture(scope="module")
def world() -> World:
    return World(ROUGH)


@pytest.fixture(scope="module")
def pages(world: World) -> list[PageSpec]:
    return list(reachable(world, world.seeds(1)))


def test_the_same_spec_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import runpy, sys; from crawlproj.simweb.spec import WorldSpec;"
        f"print(runpy.run_path({__file__!r})['digest'](WorldSpec.from_json(sys.argv[1])))"
    )

    other = subprocess.run(
        [sys.executable, "-c", code, ROUGH.to_json()],
        env=os.environ | {"PYTHONHASHSEED": "random", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert other.stdout.strip() == digest(ROUGH)


def test_another_seed_gives_another_world() -> None:
    assert digest(WorldSpec(seed=1, domains=3)) != digest(WorldSpec(seed=2, domains=3))


def total_pages(world: World) -> int:
    return sum(site.pages + site.unlinked for site in map(world.site, range(world.spec.domains)))


def test_one_seed_leads_to_every_numbered_page(world: World, pages: list[PageSpec]) -> None:
    numbered = {page.url for page in pages if "/hop/" not in page.url and "/loop/" not in page.url}

    assert len(numbered) == total_pages(world)


def test_the_links_in_the_html_are_the_links_of_the_page(world: World, pages: list[PageSpec]) -> None:
    with_links = [page for page in pages if page.links]
    assert len(with_links) > 200

    for page in with_links:
        tree = LexborHTMLParser(body(world, page).decode(page.charset).encode())
        base = tree.css_first("base")
        root = urljoin(page.url, base.attributes["href"]) if base else page.url
        found = {}
        for anchor in tree.css("a[href]"):
            href = str(anchor.attributes["href"])
            if not href.startswith(("mailto:", "javascript:")):
                url = canonicalise(href, root)
                found[url] = anchor.attributes.get("rel") == "nofollow"

        assert found == dict(page.links), page.url


def test_hrefs_are_written_in_every_way_a_crawler_meets(world: World, pages: list[PageSpec]) -> None:
    html = b"".join(body(world, page) for page in pages if page.charset == "utf-8" and page.links)

    for form in (
        b'href="http://',
        b'href="//',
        b'href="/',
        b'href="../',
        b"#part-2",
        b"<base ",
        b"&amp;lang=",
    ):
        assert form in html, form


def test_urls_are_canonical_and_their_domain_is_the_sites(world: World, pages: list[PageSpec]) -> None:
    for page in pages:
        assert canonicalise(page.url) == page.url
        assert domain_of(page.url) == world.site(page.site).domain


def test_named_worlds_spread_a_domain_over_subdomains() -> None:
    world = World(WorldSpec(domains=10, naming="name", port=8080))

    hosts = defaultdict(set)
    for page in reachable(world, world.seeds()):
        hosts[domain_of(page.url)].add(page.url.split("/")[2])

    assert sorted(hosts) == [world.site(number).domain for number in range(world.spec.domains)]
    assert max(len(names) for names in hosts.values()) == 3


def test_a_rough_world_has_every_kind_and_fault(pages: list[PageSpec]) -> None:
    many = list(reachable(big := World(WorldSpec.rough(domains=60, port=1, sitemap_share=0)), big.seeds()))

    assert {page.kind for page in many} >= set(Kind) - {Kind.TRAP, Kind.ROBOTS, Kind.SITEMAP, Kind.HOSTILE}
    assert {page.fault for page in many} == set(Fault) - {Fault.THROTTLED, Fault.DEAD}
    assert {page.failures for page in many} == {0, 1, ALWAYS}
    assert {page.encoding for page in many} == {"identity", "gzip", "br", "zstd"}
    assert {page.charset for page in many} == {"utf-8", "iso-8859-1", "windows-1251", "shift_jis", "utf-16"}
    assert {page.status for page in many} == {200, 301, 302, 303, 307, 308, 404}


def test_a_calm_world_has_only_plain_pages() -> None:
    world = World(WorldSpec.calm(domains=20))

    for page in reachable(world, world.seeds()):
        assert (page.kind, page.fault, page.status) == (Kind.PAGE, Fault.NONE, 200)


def test_sizes_of_domains_vary_around_the_mean() -> None:
    world = World(WorldSpec(domains=1000, pages_per_domain=50))

    sizes = [world.site(number).pages for number in range(1000)]

    assert 45_000 < sum(sizes) < 55_000
    assert min(sizes) < 10
    assert max(sizes) > 200


def test_duplicates_share_every_byte_and_near_duplicates_most(world: World, pages: list[PageSpec]) -> None:
    copies = Counter(body(world, page) for page in pages if page.kind is Kind.DUPLICATE)
    near = next(page for page in pages if page.kind is Kind.NEAR_DUPLICATE and page.text_bytes > 3000)
    assert near.canonical is not None
    original = world.page(near.canonical)
    assert original is not None

    words, original_words = (
        set(LexborHTMLParser(body(world, page).decode(page.charset).encode()).text().split())
        for page in (near, original)
    )

    assert max(copies.values()) > 1
    assert body(world, near) != body(world, original)
    assert len(words & original_words) > 0.6 * len(words | original_words)


def test_traps_never_end() -> None:
    world = World(WorldSpec.calm(domains=1, trap_share=1.0))
    home = world.page(world.seeds()[0])
    assert home is not None
    clients = [link.url for link in home.links if (page := world.page(link.url)) and page.kind is Kind.TRAP]
    assert len(clients) == 3

    for url in clients:
        seen = set()
        for _ in range(50):
            page = world.page(url)
            assert page is not None
            assert page.kind is Kind.TRAP
            assert page.url not in seen
            seen.add(page.url)
            url = page.links[-1].url


def test_the_sitemap_of_a_large_domain_is_an_index() -> None:
    spec = WorldSpec.calm(domains=1, pages_per_domain=5000, sitemap_share=1.0)
    world = World(spec)
    index = world.page("http://127.0.1.1/sitemap.xml")
    assert index is not None
    assert b"<sitemapindex" in body(world, index)

    parts = [world.page(link.url) for link in index.links]

    assert sum(len(part.links) for part in parts if part) == total_pages(world)
    assert world.page("http://127.0.1.1/sitemap-99.xml") is None


def test_an_override_changes_one_domain_alone() -> None:
    spec = WorldSpec.calm(domains=4, overrides={2: {"error_404_share": 1.0, "pages_per_domain": 200}})
    world = World(spec)

    lost = Counter(page.site for page in reachable(world, world.seeds()) if page.kind is Kind.NOT_FOUND)

    assert lost == {2: world.site(2).pages - 1}
    assert lost[2] > 0


def test_a_closed_first_domain_leaves_seeds_that_reach_the_others() -> None:
    world = World(WorldSpec.calm(domains=30, overrides={0: {"closed_share": 1.0}}))

    sites = {page.site for page in reachable(world, world.seeds(1))}

    assert sites >= set(range(1, 30))


def test_a_spec_survives_json() -> None:
    spec = WorldSpec.rough(seed=9, domains=7, overrides={3: {"drop_share": 0.5, "hang_share": 0.1}})

    assert WorldSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"domains": 0}, "domains=0 is out of range"),
        ({"naming": "dns"}, "naming='dns' is unknown"),
        ({"drop_share": 1.5}, "drop_share=1.5 is not a share"),
        ({"drop_share": 0.6, "hang_share": 0.6}, "is more than 1"),
        ({"overrides": {1: {"drop_shares": 1}}}, "Did you mean drop_share"),
        ({"overrides": {1: {"port": 1}}}, "belongs to the whole world"),
    ],
)
def test_an_impossible_spec_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        WorldSpec(**fields)  # type: ignore[arg-type]


def test_every_domain_has_its_own_loopback_address() -> None:
    addresses = [address_of(number) for number in range(100_000)]

    assert len(set(addresses)) == 100_000
    assert all(address.startswith("127.") for address in addresses)
    assert "127.0.0.1" not in addresses
    assert [number_of(address) for address in addresses] == list(range(100_000))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.1", "127.0.1.x", "127.0.01.1", "d1.test", "a.test", "8.8.8.8"]
)
def test_a_host_outside_the_world_has_no_number(host: str) -> None:
    assert number_of(host) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.1.1:8080/no/such-page.html",
        "http://127.0.1.1:8080/news/river-999999.html",
        "http://127.0.1.1:8080/hop/1/9",
        "http://127.0.1.1:9999/",
        "https://127.0.1.1:8080/",
        "http://127.0.2.200:8080/",
        "http://d00001.test:8080/",
    ],
)
def test_an_unlinked_url_is_not_a_page(world: World, url: str) -> None:
    assert world.page(url) is None


# -- sitemaps


def sitemap_world(**fields: Any) -> World:
    shares = {"sitemap_share": 1.0, "sitemap_only_share": 0.25} | fields
    return World(WorldSpec.calm(domains=2, pages_per_domain=40, size_spread=0.0, port=8080, **shares))


def locations(world: World, url: str) -> list[str]:
    page = world.page(url)
    assert page is not None
    data = body(world, page)
    text = gzip.decompress(data) if url.endswith(".gz") else data
    return [html.unescape(url) for url in re.findall(r"<loc>(.*?)</loc>", text.decode())]


def test_some_pages_are_named_by_the_sitemap_alone() -> None:
    world = sitemap_world()
    linked = {page.url for page in reachable(world, world.seeds())}

    listed = locations(world, f"http://{world.site(0).domain}:8080/sitemap.xml")

    assert len(listed) == 50
    assert listed == world.sitemap_urls(0)
    assert len(set(listed) - linked) == 10
    assert all(world.page(url) is not None for url in listed)
    assert total_pages(world) == 100


def test_a_sitemap_can_be_an_index_of_gzipped_ones() -> None:
    world = sitemap_world(sitemap_gzip=True)
    home = f"http://{world.site(0).domain}:8080"

    [child] = locations(world, f"{home}/sitemap.xml")

    assert child == f"{home}/sitemap-0.xml.gz"
    assert locations(world, child) == world.sitemap_urls(0)
    assert world.page(f"{home}/sitemap-0.xml") is None
    assert world.page(f"{home}/sitemap-1.xml.gz") is None


def test_a_sitemap_with_pages_of_its_own_is_named_by_robots() -> None:
    world = sitemap_world(no_robots_share=1.0)

    assert f"Sitemap: http://{world.site(1).domain}:8080/sitemap.xml" in world.site(1).robots_text()
