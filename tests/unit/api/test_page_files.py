"""The files of the web page: small, self-contained, and text from pages never becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

import crawlproj

STATIC = Path(crawlproj.__file__).parent / "api" / "static"
MODULES = sorted(STATIC.glob("*.js"))
FIRST_VIEW_BYTES = 100_000
#: Static imports; a view that is loaded when it is wanted uses import().
IMPORT = re.compile(r'^(?:import|export) .*from "\./([\w-]+\.js)";$', re.MULTILINE)
LAZY_IMPORT = re.compile(r'import\("\./([\w-]+\.js)"\)')
#: Ways to make markup or code out of text.
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser|srcdoc"
    r"|setHTML|\beval\b|new Function|javascript:"
)


def modules_of_first_view() -> set[str]:
    found = {"app.js"}
    queue = ["app.js"]
    while queue:
        new = set(IMPORT.findall((STATIC / queue.pop()).read_text())) - found
        found |= new
        queue += new
    return found


def test_no_text_becomes_markup_or_code() -> None:
    found = {path.name: MARKUP.findall(path.read_text()) for path in MODULES}

    assert {name: ways for name, ways in found.items() if ways} == {}


def test_nothing_comes_from_outside() -> None:
    outside = re.compile(r"(?:https?:)?//[a-z0-9][\w.-]*\.[a-z]{2,}", re.IGNORECASE)
    # The namespace of SVG is a name, and the form shows an example.
    allowed = {"http://www.w3.org", "https://example.com"}

    for path in STATIC.iterdir():
        assert set(outside.findall(path.read_text())) <= allowed, path.name


def test_the_page_obeys_its_own_content_security_policy() -> None:
    page = (STATIC / "index.html").read_text()

    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    for path in MODULES:
        assert 'setAttribute("style"' not in path.read_text(), path.name


def test_the_first_view_is_below_100_kb() -> None:
    wanted = {"index.html", "style.css", "icon.svg", *modules_of_first_view()}

    assert sum((STATIC / name).stat().st_size for name in wanted) < FIRST_VIEW_BYTES


def test_every_module_is_there_and_is_used() -> None:
    sources = [path.read_text() for path in MODULES]
    imported = {name for text in sources for found in (IMPORT, LAZY_IMPORT) for name in found.findall(text)}

    assert {path.name for path in MODULES} == imported | {"app.js"}


def test_the_page_preloads_what_its_first_view_imports() -> None:
    page = (STATIC / "index.html").read_text()
    preloaded = set(re.findall(r'rel="modulepreload" href="static/([\w-]+\.js)"', page))

    assert preloaded == modules_of_first_view() - {"app.js"}
