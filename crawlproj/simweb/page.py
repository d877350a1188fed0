"""What one URL of a simulated web is."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from crawlproj.simweb.faults import Fault
from crawlproj.simweb.hostile import Hostile


class Kind(StrEnum):
    PAGE = "page"
    REDIRECT = "redirect"
    NOT_FOUND = "404"
    HUGE = "huge"
    FILE = "file"
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near duplicate"
    TRAP = "trap"
    ROBOTS = "robots"
    SITEMAP = "sitemap"
    HOSTILE = "hostile"


class Link(NamedTuple):
    url: str
    nofollow: bool = False


# A Struct, not a dataclass: twenty frozen fields of one cost more than all random draws of a page.
class PageSpec(msgspec.Struct, frozen=True, gc=False):
    """What one URL is. The bytes of its body are ``render.body(world, page)``."""

    url: str
    site: int
    kind: Kind
    status: int = 200  # once it no longer fails
    fault: Fault = Fault.NONE
    failures: int = 0  # how many requests get the fault first; faults.ALWAYS: all of them
    location: str | None = None
    links: tuple[Link, ...] = ()  # each URL once; the HTML may repeat them
    content_type: str = "text/html"
    language: str = "en"
    charset: str = "utf-8"
    declared: str = "both"  # where the charset is said: "header", "meta" or "both"
    encoding: str = "identity"  # if the client accepts it
    chunked: bool = False
    text_bytes: int = 0
    text_seed: int = 0
    altered_seed: int | None = None  # of a near duplicate: which sentences differ
    absolute_links: bool = False
    base: str | None = None
    canonical: str | None = None
    hostile: Hostile = Hostile.NONE
    hostile_number: int = 0  # the bytes before a reset; how many redirects lie behind
