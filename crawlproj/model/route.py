"""How a URL was reached: what its lease carries beyond the URL, as the JSON object of `Candidate.extra`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Route(NamedTuple):
    """Through how many redirects in a row, and from where; as a sitemap, how deep.

    ``cookie`` is the header to send with this one request: what its own redirects asked to be told again.
    ``is_freed``: people let it go on although it looks like a trap.
    """

    hops: int = 0
    redirected_from: str = ""
    sitemap_level: int = 0
    cookie: str = ""
    is_freed: bool = False

    @classmethod
    def decode(cls, extra: str) -> Route:
        if not extra:
            return _DIRECT
        values: dict[str, Any] = json.loads(extra)
        return cls(
            int(values.get("hops", 0)),
            str(values.get("from", "")),
            int(values.get("sitemap", 0)),
            str(values.get("cookie", "")),
            values.get("freed") is True,
        )

    def encode(self) -> str:
        """Return it as an extra; '' for a URL that was reached directly."""
        names = ("hops", "from", "sitemap", "cookie", "freed")
        values = {name: value for name, value in zip(names, self, strict=True) if value}
        # Without spaces: `gate` and `feed` look for parts of it in the text.
        return json.dumps(values, separators=(",", ":")) if values else ""

    def onward(self, url: str, cookie: str = "") -> Route:
        """Return the route to where *url*, which was reached by this one, redirects."""
        return self._replace(hops=self.hops + 1, redirected_from=url, cookie=cookie)


_DIRECT = Route()
