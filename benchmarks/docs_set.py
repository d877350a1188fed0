"""Makes a set of reference documentation for `gold`, from packages of Debian 12.

    PYTHONPATH=. .venv/bin/python benchmarks/docs_set.py SETS [--debs DIR]

It fetches each package named below with ``apt-get download`` (or takes it from DIR), picks pages by the hash
of their path, and writes them to SETS/reference-docs. The text of a page is that of the container that its
generator declares for the content, without the navigation inside of it: links to other pages and what stands
beside the text. A table of contents in the column of the text is text; pages that only list links have no
other.

Nothing is learnt from packages that are held out; those in UNSEEN were made by generators that made no page
that is learnt from. The pages have the licences of their packages and are no part of this project. Other
versions of the packages make another set: index.json says which ones were used.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gold import REFERENCE_DOCS, words
from lxml import html as lxml_html

from crawlproj.parsing.charset import transcode

LEARNT_PAGES, HELD_OUT_PAGES = 9, 12
#: Of those, pages that may be nothing but lists of links.
MOST_LISTS = 3
MOST_BYTES, LEAST_WORDS = 300_000, 15

LISTING = re.compile(r"(index|toc|contents|modules|functions|classes|deprecated)[^/]*\.html?$")
#: Not documentation: listings of sources, what search boxes load.
OMITTED = re.compile(r"_source\.html|/src/|/src-html/|/search/|/_modules/|/examples?/|search\.html")


def has_class(*names: str) -> str:
    return " or ".join(f"contains(concat(' ', @class, ' '), ' {name} ')" for name in names)


@dataclass(frozen=True, slots=True)
class Generator:
    """XPaths of what holds the content, and of what inside of that is navigation."""

    content: str
    navigation: str = "//nav"


_BODY = "//body"
GENERATORS = {
    "docbook": Generator(f"//body/div[not({has_class('navheader', 'navfooter')})]"),
    "publican": Generator("//body/div[not(@id='banner')]", f"//*[{has_class('docnav')}]"),
    "boostbook": Generator(f"//body/div[not({has_class('spirit-nav')})]"),
    "gtk-doc": Generator("//body/div[not(@class='footer')]"),
    "sphinx": Generator(
        f"//*[@itemprop='articleBody'] | //div[{has_class('body')}]", f"//*[{has_class('related')}]"
    ),
    "sphinx, django": Generator("//div[@id='yui-main']", f"//*[{has_class('nav')}]"),
    "sphinx, sqlalchemy": Generator("//div[@id='docs-body']"),
    "sphinx, pydata": Generator("//main", f"//nav | //*[{has_class('prev-next-bottom', 'bd-toc')}]"),
    "texinfo": Generator(_BODY, f"//*[{has_class('header', 'nav-panel')}]"),
    "texi2html": Generator(
        "//div[@id='main']", f"//*[{has_class('nav_table')}] | //*[@id='footer' or @id='languages']"
    ),
    "javadoc": Generator(
        "//main | //body/div[@class='header'] | //body/div[contains(@class, 'Container')]",
        f"//nav | //*[{has_class('subNav', 'topNav', 'bottomNav')}]",
    ),
    "doxygen": Generator("//div[@class='headertitle'] | //div[@class='contents']", "//div[@class='toc']"),
    "latex2html": Generator(_BODY, f"//*[{has_class('navigation')}] | //address"),
    "man2html": Generator(_BODY, f"//*[{has_class('nav')}]"),
    "mkdocs": Generator("//div[@role='main'] | //article", f"//nav | //*[{has_class('md-source-file')}]"),
    "pandoc": Generator(f"//div[{has_class('content')}]"),
    "asciidoc": Generator("//div[@id='header'] | //div[@id='content']"),
    "rdoc": Generator("//main"),
    "qdoc": Generator(f"//div[{has_class('mainContent')}]", f"//*[{has_class('sidebar')}]"),
    "apache": Generator(
        "//div[@id='page-content'] | //body[not(.//*[@id='page-content'])]/div[@id='preamble']"
        " | //div[@id='directive-ref']",
        "//div[@id='quickview'] | //div[@class='top']",
    ),
    "erlang": Generator("//div[@id='content']", f"//*[{has_class('footer')}]"),
    "crystal": Generator(f"//div[{has_class('main-content')}]"),
    "scribble": Generator("//div[@class='main']", f"//*[{has_class('navsettop', 'navsetbottom')}]"),
    "gapdoc": Generator(
        _BODY,
        f"//*[{has_class('chlinktop', 'chlinkprevnexttop', 'chlinkprevnextbot', 'chlinkbot')}]"
        " | //*[@id='mathjaxlink']",
    ),
    "exim": Generator("//div[@id='chapter']"),
    "pod2html": Generator(_BODY),
    "node": Generator("//div[@id='apicontent']"),
    "rustdoc": Generator("//section[@id='main-content']"),
    "haddock": Generator("//div[@id='content']"),
    "gi-docgen": Generator("//section[@id='main']"),
    "nim": Generator("//h1[@class='title'] | //div[@id='content']"),
    "pl-doc": Generator(_BODY, f"//*[{has_class('navigate')}]"),
    "sqlite": Generator(_BODY, f"//*[{has_class('nosearch')}]"),
    "tomcat": Generator("//div[@id='content']"),
    "h2o": Generator("//div[@id='main']"),
    "libvirt": Generator("//main"),
}

#: Packages that are learnt from: their generator, and which of their files.
LEARNT = {
    "docbook-xsl-doc-html": ("docbook", "/doc/"),
    "aptitude-doc-en": ("docbook", ""),
    "installation-guide-amd64": ("docbook", "/en/"),
    "apt-doc": ("docbook", r"guide\.html/|offline\.html/"),
    "db5.3-doc": ("docbook", "/api_reference/"),
    "shorewall-doc": ("docbook", ""),
    "debian-handbook": ("publican", "/en-US/"),
    "libboost1.74-doc": ("boostbook", "/doc/html/"),
    "libglib2.0-doc": ("gtk-doc", ""),
    "libcairo2-doc": ("gtk-doc", ""),
    "cmake-doc": ("sphinx", ""),
    "linux-doc-6.1": ("sphinx", r"/html/(?!translations)"),
    "libtiff-doc": ("sphinx", ""),
    "borgbackup-doc": ("sphinx", ""),
    "bind9-doc": ("sphinx", ""),
    "python-markdown-doc": ("sphinx", ""),
    "python-django-doc": ("sphinx, django", ""),
    "m4-doc": ("texinfo", ""),
    "libgcrypt20-doc": ("texinfo", ""),
    "maxima-doc": ("texinfo", "/html/maxima_"),
    "sbcl-doc": ("texinfo", ""),
    "lilypond-doc-html": ("texi2html", r"/Documentation/(?!.*\.[a-z]{2}\.html)"),
    "libcommons-collections4-java-doc": ("javadoc", ""),
    "fop-doc": ("javadoc", ""),
    "groovy-doc": ("javadoc", ""),
    "libeigen3-doc": ("doxygen", ""),
    "fltk1.3-doc": ("doxygen", ""),
    "dbus-1-doc": ("doxygen", ""),
    "libgeos-doc": ("doxygen", ""),
    "bacula-doc": ("latex2html", "/html/main/"),
    "ncurses-doc": ("man2html", "/man/"),
    "mkdocs-doc": ("mkdocs", ""),
    "allegro5-doc": ("pandoc", ""),
    "git-doc": ("asciidoc", ""),
    "asciidoctor-doc": ("rdoc", ""),
    "qtbase5-doc-html": ("qdoc", ""),
    "apache2-doc": ("apache", "/en/"),
    "erlang-doc": ("erlang", ""),
    "crystal-doc": ("crystal", "/api-docs/"),
    "racket-doc": ("scribble", ""),
    "gap-doc": ("gapdoc", ""),
    "exim4-doc-html": ("exim", ""),
    "rrdtool": ("pod2html", ""),
}
#: Packages that are held out, of generators that are learnt from ...
HELD_OUT = {
    "postgresql-doc-15": ("docbook", ""),
    "wireshark-doc": ("docbook", ""),
    "libgtk-3-doc": ("gtk-doc", "/gtk3/"),
    "python3.11-doc": ("sphinx", ""),
    "python-sqlalchemy-doc": ("sphinx, sqlalchemy", ""),
    "python-scipy-doc": ("sphinx, pydata", ""),
    "octave-doc": ("texinfo", r"/octave\.html/"),
    "asymptote-doc": ("texinfo", "/html/"),
    "libcommons-lang3-java-doc": ("javadoc", ""),
    "liblog4j1.2-java-doc": ("javadoc", ""),
    "libstdc++-12-doc": ("doxygen", "/user/"),
    "xapian-doc": ("doxygen", "/apidoc/"),
    "gnuplot-doc": ("latex2html", ""),
    "postfix-doc": ("man2html", r"\.\d\.html"),
    "freetype2-doc": ("mkdocs", ""),
    "ntpsec-doc": ("asciidoc", ""),
    "qtdeclarative5-doc-html": ("qdoc", ""),
}
#: ... and of others.
UNSEEN = {
    "nodejs-doc": ("node", ""),
    "rust-doc": ("rustdoc", "/html/(std|core|alloc)/"),
    "libghc-lens-doc": ("haddock", ""),
    "libgtk-4-doc": ("gi-docgen", ""),
    "nim-doc": ("nim", ""),
    "swi-prolog-doc": ("pl-doc", "/Manual/"),
    "sqlite3-doc": ("sqlite", ""),
    "tomcat10-docs": ("tomcat", ""),
    "h2o-doc": ("h2o", ""),
    "libvirt-doc": ("libvirt", ""),
}
#: Pages that are taken in any case: the ones a fault was first seen on.
NAMED = re.compile(r"/(sql-deallocate|functions-geometry|nodejs/api/url)\.html$")
_INLINE = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q s samp "
    "small span strike strong sub sup time tt u var wbr"
)
INLINE = frozenset(_INLINE.split())


def text_of(source: bytes, generator: Generator) -> str:
    """What the container of the content says, its blocks apart from each other."""
    page = lxml_html.fromstring(source, parser=lxml_html.HTMLParser(encoding="utf-8"))
    unread = f"//script | //style | //svg | //template | //noscript | {generator.navigation}"
    for element in page.xpath(unread):
        if element.getparent() is not None:
            element.drop_tree()
    found = page.xpath(generator.content)
    outermost = [element for element in found if set(found).isdisjoint(element.iterancestors())]
    return "\n".join("".join(_texts(element)) for element in outermost)


def _texts(element: lxml_html.HtmlElement) -> Iterator[str]:
    is_block = element.tag not in INLINE
    if isinstance(element.tag, str):
        yield "\n" if is_block else ""
        yield element.text or ""
        for inner in element:
            yield from _texts(inner)
            yield inner.tail or ""
        yield "\n" if is_block else ""


def members(package: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        for member in archive:
            yield archive, member


def pick(package: Path, wanted: str) -> list[str]:
    """The pages of a package in the order in which they are tried."""
    names = [
        member.name
        for _, member in members(package)
        if member.isfile()
        and 500 < member.size <= MOST_BYTES
        and re.search(r"\.html?(\.gz)?$", member.name)
        and re.search(wanted, member.name)
        and not OMITTED.search(member.name)
    ]
    names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    named = [name for name in names if NAMED.search(name)]
    lists = [name for name in names if LISTING.search(name) and name not in named][:MOST_LISTS]
    return [*named, *lists, *(name for name in names if name not in named and not LISTING.search(name))]


def pages_of(package: Path, generator: Generator, wanted: str, most: int) -> Iterator[tuple[str, bytes, str]]:
    """Names, UTF-8 and texts of up to *most* pages."""
    names = pick(package, wanted)[: 8 * most]
    sources = {
        member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
        for archive, member in members(package)
        if member.name in names
    }
    for name in names:
        source = gzip.decompress(sources[name]) if name.endswith(".gz") else sources[name]
        source = transcode(source, "text/html", False)[0]
        text = text_of(source, generator) if len(source) <= 4 * MOST_BYTES else ""
        if len(words(text)) >= LEAST_WORDS and most > 0:
            most -= 1
            yield name, source, text


def fetched(package: str, folder: Path) -> Path:
    if not list(folder.glob(f"{package}_*.deb")):
        subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True)
    return next(folder.glob(f"{package}_*.deb"))


def make(folder: Path, debs: Path) -> None:
    index = []
    for of_part, packages in (("learnt", LEARNT), ("held out", HELD_OUT), ("unseen", UNSEEN)):
        for name, (generator, wanted) in packages.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            package = fetched(name, debs)
            most = LEARNT_PAGES if of_part == "learnt" else HELD_OUT_PAGES
            pages = list(pages_of(package, GENERATORS[generator], wanted, most))
            for number, (path, source, text) in enumerate(pages):
                page = f"{name}/{number}.html"
                (folder / page).write_bytes(source)
                record = {"page": page, "path": path, "generator": generator, "part": of_part, "text": text}
                index.append(record | {"package": package.name})
            print(f"{of_part}: {package.name}, {len(pages)} pages by {generator}", flush=True)
    (folder / "index.json").write_text(json.dumps(index, ensure_ascii=False, indent=1), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path)
    parser.add_argument("--debs", type=Path, metavar="DIR", help="packages, fetched if they are missing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(given.sets / REFERENCE_DOCS, given.debs or Path(folder))


if __name__ == "__main__":
    main()
