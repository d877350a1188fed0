"""Real pages to crawl: HTML documentation of Debian packages, as sites that are closed in themselves.

The packages are downloaded (never installed) into a cache folder: benchmarks/.cache, or BENCH_CACHE. The
pages of each are dealt out to some hosts. A link that leads away from its host, to the web or to another
host's page, is turned to a page of its own host, so that no crawler can leave the machine and the number of
links stays as it was.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import lxml.html  # type: ignore[import-untyped]
import msgspec
import zstandard
from measuring import say

#: Changes whenever the same packages would give other pages.
_VERSION = 1
HOSTS = 20
PAGES_PER_HOST = 100
_MOST_PAGE_BYTES = 400_000
_LEAST_PAGE_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class _Source:
    """A package, by a pattern that fits its name in every release, and how many hosts its pages fill."""

    pattern: str
    hosts: int


_SOURCES = (
    _Source(r"^python3\.[0-9]+-doc$", 4),
    _Source(r"^python-django-doc$", 6),
    _Source(r"^postgresql-doc-[0-9]+$", 10),
)

_LINK = re.compile(r'(<(?:a|area|link|base)\b[^>]*?\bhref=")([^"]*)(")', re.IGNORECASE)
_NOFOLLOW = re.compile(r'\brel="[^"]*nofollow[^"]*"', re.IGNORECASE)
_ROBOTS_META = re.compile(r'<meta[^>]*name="robots"', re.IGNORECASE)
_VISIBLE = (
    "//body//text()[not(ancestor::script or ancestor::style or ancestor::noscript or ancestor::template)]"
)
_WORD = re.compile(r"\w+")


class Site(msgspec.Struct):
    """The pages of one host, by their paths. The first is '/', and all others can be reached from it."""

    pages: dict[str, bytes]


class Corpus(msgspec.Struct):
    packages: list[str]
    sites: list[Site]

    @property
    def page_count(self) -> int:
        return sum(len(site.pages) for site in self.sites)

    @property
    def mean_bytes(self) -> float:
        return sum(len(body) for site in self.sites for body in site.pages.values()) / self.page_count

    @property
    def addresses(self) -> list[str]:
        return [address(number) for number in range(len(self.sites))]

    def urls(self, scheme: str, port: int) -> set[str]:
        return {
            f"{scheme}://{host}:{port}{path}"
            for host, site in zip(self.addresses, self.sites, strict=True)
            for path in site.pages
        }

    def seeds(self, scheme: str, port: int) -> list[str]:
        return [f"{scheme}://{host}:{port}/" for host in self.addresses]

    def body(self, url: str) -> bytes:
        """The page at *url*, whatever its scheme and port."""
        host, path = re.fullmatch(r"https?://([0-9.]+):\d+(/.*)", url).groups()  # type: ignore[union-attr]
        return self.sites[int(host.rpartition(".")[2]) - 1].pages[path]

    def smaller(self, pages_per_host: int) -> Corpus:
        """The same hosts with their first pages only; links to the others lead to '/' instead."""
        return Corpus(
            self.packages,
            [_closed(dict(list(site.pages.items())[:pages_per_host])) for site in self.sites],
        )

    def empty(self) -> Corpus:
        """The same hosts with one small page each: a crawl of it costs what starting and ending cost."""
        page = (
            b"<!doctype html><html><head><title>empty</title></head><body><p>Nothing here.</p></body></html>"
        )
        return Corpus(self.packages, [Site({"/": page}) for _ in self.sites])


def address(number: int) -> str:
    """The host of site *number*."""
    return f"127.20.{number // 250}.{number % 250 + 1}"


def load() -> Corpus:
    """The corpus, built when it is not in the cache."""
    cache = Path(os.environ.get("BENCH_CACHE") or Path(__file__).parent / ".cache")
    path = cache / f"corpus-{_VERSION}.msgpack.zst"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        data = zstandard.compress(msgspec.msgpack.encode(_build(cache)))
        partial = path.with_suffix(".part")
        partial.write_bytes(data)
        partial.rename(path)
    return msgspec.msgpack.decode(zstandard.decompress(path.read_bytes()), type=Corpus)


def words_of(body: bytes) -> set[str]:
    """The words that a reader of the page could see."""
    document = lxml.html.document_fromstring(body, parser=lxml.html.HTMLParser(encoding="utf-8"))
    return words(" ".join(document.xpath(_VISIBLE)))


def words(text: str) -> set[str]:
    return set(_WORD.findall(text))


def _build(cache: Path) -> Corpus:
    corpus = Corpus([], [])
    for source in _SOURCES:
        name = _newest_package(source.pattern)
        say(f"   corpus: {name}")
        archive = _download(name, cache)
        folder = cache / name
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True)
        corpus.packages.append(archive.name.partition("_all")[0])
        corpus.sites += _sites(_read_pages(folder), source.hosts)
        shutil.rmtree(folder)
    assert len(corpus.sites) == HOSTS
    return corpus


def _newest_package(pattern: str) -> str:
    found = subprocess.run(
        ["apt-cache", "search", "--names-only", pattern], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    names = [line.partition(" - ")[0] for line in found if line]
    if not names:
        raise RuntimeError(
            f"No Debian package is named like {pattern}; run `apt-get update`, or bring the "
            f"benchmarks/.cache of another machine and name it by BENCH_CACHE."
        )
    return max(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def _download(name: str, cache: Path) -> Path:
    if not list(cache.glob(f"{name}_*.deb")):
        subprocess.run(["apt-get", "download", name], cwd=cache, check=True, capture_output=True)
    return next(cache.glob(f"{name}_*.deb"))


def _read_pages(folder: Path) -> dict[str, str]:
    """HTML files by the path below their common folder, in the order of their names."""
    files = sorted(
        path
        for path in folder.rglob("*.html")
        if not path.is_symlink() and _LEAST_PAGE_BYTES <= path.stat().st_size <= _MOST_PAGE_BYTES
    )
    top = os.path.commonpath([path.parent for path in files])
    pages = {f"/{path.relative_to(top).as_posix()}": path.read_text(errors="replace") for path in files}
    return {path: text for path, text in pages.items() if not _ROBOTS_META.search(text)}


def _sites(pages: dict[str, str], hosts: int) -> Iterator[Site]:
    """Deal *pages* out like cards, so that each host has some of every chapter."""
    wanted = hosts * PAGES_PER_HOST
    if len(pages) < wanted:
        raise RuntimeError(f"The package has {len(pages)} pages, and {wanted} are wanted of it.")
    # Evenly over the whole package, not its first chapters only.
    chosen = [list(pages)[number * len(pages) // wanted] for number in range(wanted)]
    for host in range(hosts):
        yield _closed({path: pages[path].encode() for path in chosen[host::hosts]})


def _closed(pages: dict[str, bytes]) -> Site:
    """Turn every link to one of *pages*; make all of them reachable from the first, which becomes '/'."""
    names = _Names(list(pages))
    turned: dict[str, str] = {}
    targets: dict[str, set[str]] = {}
    for path, body in pages.items():
        own = names.new[path]
        targets[own] = set()

        def turn(match: re.Match[str], path: str = path, own: str = own) -> str:
            href, fragment = urldefrag(match[2])
            if not href or href.startswith(("mailto:", "javascript:", "data:")):
                return match[0]
            target = names.find(urljoin(path, href))
            if match[1].lower().startswith("<a"):  # not <link>
                targets[own].add(target)
            return match[1] + _relative(own, target) + (f"#{fragment}" if fragment else "") + match[3]

        turned[own] = _LINK.sub(turn, _NOFOLLOW.sub("", body.decode()))
    missing = turned.keys() - _reached(targets)
    if missing:
        more = "".join(f'<li><a href="{path[1:]}">{path[1:]}</a></li>' for path in sorted(missing))
        turned["/"] = turned["/"].replace("</body>", f"<ul>{more}</ul></body>")
    return Site({path: text.encode() for path, text in turned.items()})


@dataclass(frozen=True)
class _Names:
    """Paths as they were and as they are: the first page of a host is its root."""

    paths: list[str]

    @cached_property
    def new(self) -> dict[str, str]:
        return {path: path if number else "/" for number, path in enumerate(self.paths)}

    def find(self, url: str) -> str:
        """The page that *url* leads to: itself if it is of this host, else always the same in its place."""
        path = unquote(url)
        if path in self.new:
            return self.new[path]
        number = int.from_bytes(hashlib.blake2b(url.encode(), digest_size=4).digest(), "big")
        return self.new[self.paths[number % len(self.paths)]]


def _relative(origin: str, target: str) -> str:
    if target == "/":
        return "/"
    return posixpath.relpath(target, posixpath.dirname(origin))


def _reached(targets: dict[str, set[str]]) -> set[str]:
    reached, coming = {"/"}, ["/"]
    while coming:
        new = targets[coming.pop()] - reached
        reached |= new
        coming += new
    return reached
