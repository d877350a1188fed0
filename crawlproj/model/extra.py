"""What a lease carries besides its URL. The only place that knows how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Extra(NamedTuple):
    """How a URL was reached, and how it is to be requested; most URLs carry nothing.

    ``hops`` redirects in a row led to it, the last from ``redirected_from``. ``sitemap_level`` is 1 for a
    sitemap, and one more for each sitemap index on the way to it. ``cookie`` is the header of this one
    request: what its own redirects asked to be sent back. ``is_freed``: a person released it, although it
    looks like a trap. ``robots_for`` is the origin, of another domain, whose robots.txt it is. ``request``
    are the parts of a Scrapy request (`crawlproj.shard.requests`).
    """

    hops: int = 0
    redirected_from: str = ""
    sitemap_level: int = 0
    cookie: str = ""
    is_freed: bool = False
    robots_for: str = ""
    request: Mapping[str, Any] = {}

    @classmethod
    def decode(cls, text: str) -> Extra:
        if not text:
            return NO_EXTRA
        values = json.loads(text)
        return cls(**{_ATTRIBUTES[name]: value for name, value in values.items()})

    def encode(self) -> str:
        """Return it as JSON, '' when there is nothing to carry."""
        if self is NO_EXTRA:
            return ""
        values = {name: value for name, value in zip(_NAMES, self, strict=True) if value}
        # ASCII only: half a surrogate pair, which JSON can escape, cannot be encoded for Redis.
        return json.dumps(values, separators=(",", ":")) if values else ""

    @property
    def kind(self) -> str:
        """What its URL is fetched as: page, robots or sitemap."""
        if self.robots_for:
            return "robots"
        return "sitemap" if self.sitemap_level else "page"

    def onward(self, url: str, cookie: str = "") -> Extra:
        """Return the extra of where *url*, which carried this one, redirects to."""
        return Extra(self.hops + 1, url, self.sitemap_level, cookie, self.is_freed)


#: What every attribute is called in the JSON.
_NAMES = ("hops", "from", "sitemap", "cookie", "freed", "robots_for", "request")
_ATTRIBUTES = dict(zip(_NAMES, Extra._fields, strict=True))
#: The extra of most URLs.
NO_EXTRA = Extra()
