"""Pages as the web has them, as sites closed in themselves: files of a directory, or made as simweb does.

What would make crawlers do different jobs is taken out: links lead to pages of the same host, nothing is
nofollow or for other robots only, nothing refreshes itself. The rest of each page is as it was.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import lxml.html  # type: ignore[import-untyped]
from corpus import HOSTS, Corpus, Site
from measuring import say
from selectolax.lexbor import LexborHTMLParser

from crawlproj.parsing.charset import decode
from crawlproj.simweb import render
from crawlproj.simweb.graph import World
from crawlproj.simweb.page import Kind
from crawlproj.simweb.referee import Referee
from crawlproj.simweb.spec import WorldSpec

PAGES_PER_HOST = 50
#: CRAWL_MAX_BODY: every crawler is to get whole pages.
_MOST_BYTES = 2_000_000
_LEAST_BYTES = 2_000

_LINK = re.compile(
    r"""(<(?:a|area|base|link)\b[^>]*?\shref\s*=\s*)("[^"]*"|'[^']*'|[^\s>"']+)""", re.IGNORECASE
)
_FOLLOWED = re.compile(r"""\s*(?!(?!https?:|ftp:|file:)[a-z][a-z0-9+.-]*:|#|$)""", re.IGNORECASE)
_REFRESH = re.compile(r"""<meta\b[^>]*http-equiv\s*=\s*["']?refresh[^>]*>""", re.IGNORECASE)
_ROBOTS = re.compile(r"""(<meta\b[^>]*name\s*=\s*["']?)robots""", re.IGNORECASE)
_BODY = re.compile(r"<body\b[^>]*>", re.IGNORECASE)


def load_wild(folder: Path | None, pages_per_host: int) -> Corpus:
    """Return pages of *folder* (.html and .html.gz, at any depth), without one made pages.

    Raises RuntimeError when there are not enough.
    """
    if folder is None:
        wanted, source, pages = HOSTS * pages_per_host, "crawlproj.simweb.wild", list(_made(pages_per_host))
    else:
        files = [path for path in sorted(folder.rglob("*")) if path.name.endswith((".html", ".html.gz"))]
        wanted, source = min(HOSTS * pages_per_host, len(files)), folder.name
        # Evenly over all of them; some may be unusable, so a few more are taken.
        step = max(1, len(files) // (wanted + wanted // 4 + 1))
        pages = list(_read(files[::step]))
    kept = [page for page in pages if _is_closed(_closed(page, ["/"]), {"/"})][:wanted]
    each = len(kept) // HOSTS
    if each < 2:
        raise RuntimeError(f"{source} has {len(kept)} pages that will do, and {2 * HOSTS} are the least.")
    say(f"   wild corpus: {HOSTS} hosts with {each} pages each of {source}")
    return Corpus(
        [f"{source} ({each * HOSTS:,} pages)"], [_site(kept[host::HOSTS][:each]) for host in range(HOSTS)]
    )


def _made(pages_per_host: int) -> Iterator[str]:
    shape = {"markup": "wild", "page_bytes": 5400, "links_mean": 30.0}
    world = World(
        WorldSpec.calm(domains=HOSTS, pages_per_domain=pages_per_host, size_spread=0.0, port=80, **shape)
    )
    for url in sorted(Referee(world, []).expected):
        parts = urlsplit(url)
        page = world.lookup(parts.hostname or "", parts.path + (f"?{parts.query}" if parts.query else ""))
        if page is not None and page.kind is Kind.PAGE:
            yield render.body(world, page).decode(page.charset)


def _read(files: list[Path]) -> Iterator[str]:
    seen = set()
    for path in files:
        data = path.read_bytes()
        body = gzip.decompress(data) if path.suffix == ".gz" else data
        text, _ = decode(body, "text/html", truncated=False)
        is_new = (mark := hashlib.blake2b(body).digest()) not in seen
        seen.add(mark)
        if is_new and _LEAST_BYTES <= len(text.encode()) < _MOST_BYTES - 100_000 and _BODY.search(text):
            yield text


def _site(pages: list[str]) -> Site:
    paths = ["/", *(f"/p/{number}.html" for number in range(1, len(pages)))]
    closed = [_closed(page, paths) for page in pages]
    # So that all pages can be reached, whatever else they link to.
    index = "".join(f'<li><a href="{path}">{path}</a></li>' for path in paths)
    closed[0] = _BODY.sub(lambda match: f"{match[0]}<ul>{index}</ul>", closed[0], count=1)
    return Site({path: page.encode() for path, page in zip(paths, closed, strict=True)})


def _closed(page: str, paths: list[str]) -> str:
    def turn(match: re.Match[str]) -> str:
        href = match[2].strip("\"'")
        if not _FOLLOWED.match(href):
            return match[0]
        number = int.from_bytes(hashlib.blake2b(href.encode(), digest_size=4).digest(), "big")
        return f'{match[1]}"{paths[number % len(paths)]}"'

    page = _ROBOTS.sub(r"\1x-robots", _REFRESH.sub("", page)).replace("nofollow", "follow")
    return _LINK.sub(turn, page)


def _is_closed(page: str, paths: set[str]) -> bool:
    """Say whether all links lead to *paths*, to whatever parser: no crawler may leave this machine."""
    try:
        document = lxml.html.document_fromstring(page.encode(), parser=lxml.html.HTMLParser(encoding="utf-8"))
    except (ValueError, lxml.etree.ParserError):
        return False
    hrefs = {str(href) for href in document.xpath("//@href")}
    hrefs |= {node.attributes.get("href") or "" for node in LexborHTMLParser(page).css("[href]")}
    return not any(_FOLLOWED.match(href) for href in hrefs - paths)
