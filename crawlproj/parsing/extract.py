"""What a page says: links, title, language, text, and the fields a user asked for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from html import unescape

from parsel import Selector

from crawlproj.config import Config
from crawlproj.model.records import Heading, Page
from crawlproj.model.urls import UrlRules, escape_raw_bytes
from crawlproj.pages.inflate import inflate
from crawlproj.parsing.charset import decode, transcode
from crawlproj.parsing.feeds import feed_links
from crawlproj.parsing.fields import make_field
from crawlproj.parsing.head import Head
from crawlproj.parsing.html import read_html, simhash_of
from crawlproj.parsing.language import language_of
from crawlproj.parsing.linkheader import link_targets
from crawlproj.parsing.links import base_of, canonical_links
from crawlproj.parsing.metadata import Metadata, metadata_of
from crawlproj.parsing.refresh import REDIRECT_SECONDS, refresh_target
from crawlproj.parsing.sitemaps import read_sitemap

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_JSON = frozenset({"application/json", "application/feed+json"})
_CODE = frozenset({"text/css", "text/javascript", "text/ecmascript"})
#: Types that servers send when they do not know.
_UNKNOWN = frozenset({"", "application/octet-stream", "binary/octet-stream", "unknown/unknown"})
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n", "image/png"),
    (b"GIF8", "image/gif"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"<?xml", "application/xml"),
)
_LOOKS_LIKE_HTML = re.compile(rb"\s*<(?:!doctype html|!--|[a-z][a-z0-9]*[\s/>])", re.IGNORECASE)
_LOOKS_LIKE_JSON = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[\[\]{\"\d])")
_SNIFF_BYTES = 512

_ROBOTS_VALUES = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_XML_NO_TEXT = re.compile(r"<!--.*?-->|<[?!](?!\[CDATA\[)[^>]*>", re.DOTALL)
_XML_TAG = re.compile(r"</?[A-Za-z_][^<>]*>")
_MOST_HEADINGS = 1000
_MOST_LINE_CHARS = 2000


class ExtractOptions:
    """The settings of extraction, and what is made from them once.

    Raises BadSetting for a field whose selector cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.robots_agent = config.robots_agent.lower()
        self.url_rules = UrlRules(config.drop_parameters)
        self.fields = {name: make_field(name, value) for name, value in config.fields.items()}


@dataclass(slots=True)
class Extract:
    """What was read from a page. ``links`` are canonical and distinct, in page order.

    ``nofollow`` and ``noindex`` are what the page asks for, whether or not it was obeyed. ``refresh`` is
    the page that this one redirects its reader to. ``sitemaps`` are those that an index of sitemaps names.
    ``error`` says why a fetched page has no text.
    """

    content_type: str | None = None
    charset: str | None = None
    language: str | None = None
    title: str | None = None
    description: str | None = None
    text: str | None = None
    full_text: str | None = None
    #: How the text was found.
    text_source: str | None = None
    headings: list[Heading] | None = None
    metadata: Metadata = field(default_factory=Metadata)
    links: list[str] = field(default_factory=list)
    refresh: str | None = None
    sitemaps: list[str] = field(default_factory=list)
    canonical_url: str | None = None
    nofollow: bool = False
    noindex: bool = False
    body_bytes: int = 0
    truncated: bool = False
    content_hash: str | None = None
    simhash: int | None = None
    fields: dict[str, list[str]] = field(default_factory=dict)
    error: str | None = None


def extract(page: Page, options: ExtractOptions) -> Extract:
    """Return what *page* says, reading at most CRAWL_MAX_BODY of its body once inflated.

    Text and links come from successful pages only: the words of an error page are not the site's. A sitemap
    has links and no text.
    """
    headers = {name.lower(): value for name, value in page.headers.items()}
    most_bytes = options.config.sitemap_bytes if page.sitemap_level else options.config.max_body
    body, cut = inflate(page.body, headers.get("content-encoding", ""), most_bytes)
    declared = headers.get("content-type", "")
    found = Extract(
        content_type=_content_type(declared, body),
        body_bytes=len(body),
        truncated=page.truncated or cut,
        # SHA-256 is the fastest collision-resistant hash here: processors have it built in.
        content_hash=sha256(body).hexdigest()[:32] if body else None,
    )
    if page.error or not 200 <= page.status < 300:
        return found
    if page.sitemap_level:
        _read_sitemap(body, page.url, options, found)
        return found
    for line in headers.get("x-robots-tag", "").splitlines():
        _obey(line, options.robots_agent, found)
    kind = found.content_type or ""
    language = headers.get("content-language", "")
    if kind in _HTML:
        html, found.charset = transcode(body, declared, found.truncated)
        language = _read_html(html, page, options, found) or language
    elif _is_xml(kind):
        markup, found.charset = decode(body, declared, found.truncated)
        found.text = _text_of_xml(markup)
        _read_feed(markup, page.url, options, found)
    elif _is_text(kind):
        text, found.charset = decode(body, declared, found.truncated, has_markup=False)
        found.text = text.replace("\0", "\ufffd")
        if kind in _JSON:
            _read_feed(text, page.url, options, found)
    _read_headers(headers, page.url, options, found)
    if found.noindex and options.config.obey_noindex:
        found.title = found.description = found.text = found.text_source = None
        found.full_text = found.headings = None
        found.metadata, found.fields, found.error = Metadata(), {}, "noindex"
    if found.text:
        found.language = language_of(found.text, language)
        found.simhash = simhash_of(found.text)
    return found


def _read_sitemap(body: bytes, url: str, options: ExtractOptions, found: Extract) -> None:
    sitemap = read_sitemap(
        body,
        url,
        options.url_rules,
        most_urls=options.config.sitemap_urls,
        most_bytes=options.config.sitemap_bytes,
        is_cut=found.truncated,
    )
    found.links, found.sitemaps = sitemap.urls, sitemap.sitemaps


def _may_follow(options: ExtractOptions, found: Extract) -> bool:
    return not (found.nofollow and options.config.obey_nofollow)


def _read_feed(markup: str, url: str, options: ExtractOptions, found: Extract) -> None:
    if _may_follow(options, found):
        found.links = canonical_links(feed_links(markup), url, options.config.max_links, options.url_rules)


def _read_headers(headers: Mapping[str, str], url: str, options: ExtractOptions, found: Extract) -> None:
    """Read what the headers say that elements could say as well."""
    may_follow = _may_follow(options, found)
    for relations, target in link_targets(escape_raw_bytes(headers.get("link", ""))):
        if "canonical" in relations and found.canonical_url is None:
            found.canonical_url = _resolved(target, url, options)
        if "next" in relations and may_follow:
            _add_link(_resolved(target, url, options), options, found)
    if may_follow and "refresh" in headers:
        _read_refresh(escape_raw_bytes(headers["refresh"]), url, url, options, found)


def _read_refresh(content: str, base: str, url: str, options: ExtractOptions, found: Extract) -> None:
    """Read a refresh: one with a long delay is a link, the first with a short delay a redirect."""
    delay_s, target = refresh_target(content) or (0.0, "")
    resolved = _resolved(target, base, options)
    if resolved is None or resolved == options.url_rules.clean(url):
        return
    if delay_s > REDIRECT_SECONDS:
        _add_link(resolved, options, found)
    elif found.refresh is None:
        found.refresh = resolved


def _add_link(link: str | None, options: ExtractOptions, found: Extract) -> None:
    if link is not None and link not in found.links and len(found.links) < options.config.max_links:
        found.links.append(link)


def _resolved(href: str, base: str, options: ExtractOptions) -> str | None:
    links = canonical_links([href], base, 1, options.url_rules)
    return links[0] if links else None


def _content_type(declared: str, body: bytes) -> str | None:
    name = declared.partition(";")[0].strip().lower()
    if name not in _UNKNOWN or not body:
        return name or None
    for start, kind in _MAGIC:
        if body.startswith(start):
            return kind
    start_of_body = body[:_SNIFF_BYTES].removeprefix(b"\xef\xbb\xbf")
    if _LOOKS_LIKE_HTML.match(start_of_body):
        return "text/html"
    if _LOOKS_LIKE_JSON.match(start_of_body):
        return "application/json"
    # As browsers decide: text has no control characters but those of white space and escape.
    if not any(byte < 0x20 and byte not in b"\t\n\f\r\x1b" for byte in start_of_body):
        return "text/plain"
    return "application/octet-stream"


def _is_xml(kind: str) -> bool:
    return kind in ("application/xml", "text/xml") or (
        kind.endswith("+xml") and not kind.startswith("image/")
    )


def _is_text(kind: str) -> bool:
    if kind.startswith("text/"):
        return kind not in _CODE
    return kind in ("application/json", "application/x-ndjson", "application/yaml") or kind.endswith("+json")


def _read_html(html: bytes, page: Page, options: ExtractOptions, found: Extract) -> str:
    """Read *html*, which is in UTF-8, into *found*, and return the language it says it is in."""
    config = options.config
    if options.fields:
        selector = Selector(text=html.decode())
        found.fields = {name: select(selector) for name, select in options.fields.items()}
    read = read_html(html, config)
    head = read.head
    base = _read_head(head, page.url, options, found)
    found.metadata = metadata_of(head, page.url, page.fetched_at_ms)
    if config.headings:
        found.headings = headings_of(head)
    if _may_follow(options, found):
        found.links = canonical_links(read.hrefs, base, config.max_links, options.url_rules)
        for name, content in head.metas:
            if name == "http-equiv:refresh":
                _read_refresh(content, base, page.url, options, found)
    found.text, found.text_source, found.full_text = read.text, read.text_source, read.full_text
    # What the page declares, for one that scripts would have to write.
    for text, source in ((found.metadata.body, "json-ld"), (found.description, "description")):
        if text and not found.text:
            found.text, found.text_source = text, source
    return head.language


def headings_of(head: Head) -> list[Heading]:
    return [
        Heading(level=level, text=line)
        for level, text in head.headings[:_MOST_HEADINGS]
        if (line := _one_line(text))
    ]


def _read_head(head: Head, url: str, options: ExtractOptions, found: Extract) -> str:
    """Read title and metas, and return the base of links."""
    found.title, agent = _one_line(head.title) or None, options.robots_agent
    for name, content in head.metas:
        if name == "description" or (name == "og:description" and found.description is None):
            found.description = _one_line(content) or found.description
        elif name == "robots" or (agent and name == agent):
            _obey(content, agent, found)
    base = base_of(head.base, url) if head.base else url
    if head.canonical:
        found.canonical_url = _resolved(head.canonical, base, options)
    return base


def _obey(directives: str, agent: str, found: Extract) -> None:
    """Note what a robots meta element or an X-Robots-Tag says, unless it says it to other robots."""
    addressed = True
    for word in directives.lower().split(","):
        name, colon, rest = word.partition(":")
        if colon and name.strip() not in _ROBOTS_VALUES:
            addressed = name.strip() in ("robots", "*", agent)
            word = rest
        word = word.strip()
        if addressed:
            found.nofollow = found.nofollow or word in ("nofollow", "none")
            found.noindex = found.noindex or word in ("noindex", "none")


def _text_of_xml(markup: str) -> str:
    markup = _XML_NO_TEXT.sub("", markup).replace("<![CDATA[", "").replace("]]>", "")
    parts = (_one_line(unescape(part)) for part in _XML_TAG.sub("\f", markup).split("\f"))
    return "\n".join(part for part in parts if part)


def _one_line(text: str) -> str:
    return " ".join(text[: 4 * _MOST_LINE_CHARS].split())[:_MOST_LINE_CHARS]
