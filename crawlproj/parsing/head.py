"""What a page says about itself, as it is written there. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Head:
    """The declarations of a page, in the order of the page; '' or an empty list for what it does not say.

    Nothing is interpreted here: values are the attributes and texts of the elements, entities resolved.
    """

    title: str = ""
    #: Name and content of each ``<meta>``: the name is its property, name or itemprop, or
    #: ``http-equiv:`` and that; lower case, stripped.
    metas: list[tuple[str, str]] = field(default_factory=list)
    base: str = ""
    canonical: str = ""
    language: str = ""
    #: The contents of ``<script type="application/ld+json">``.
    json_ld: list[str] = field(default_factory=list)
    #: Of each ``<time>`` its datetime attribute (else its text), and its class and itemprop, one string.
    times: list[tuple[str, str]] = field(default_factory=list)
    #: The texts of elements marked as the author: rel=author, itemprop=author, class=byline and the like.
    bylines: list[str] = field(default_factory=list)
    #: Level and text of the headings.
    headings: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Html:
    """A page that was read. ``hrefs`` are different ones in its order, their fragments cut off.

    ``text_source`` says how the text was found: ``main``, or ``relaxed``, ``all``, ``noscript`` where the
    ways before found nothing; None for a page without words. ``full_text`` is there if it was asked for.
    """

    head: Head
    hrefs: list[str]
    text: str
    text_source: str | None
    full_text: str | None
