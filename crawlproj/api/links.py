"""Links to downloads, which a browser saves by itself, without a token: the link has a signature instead.

It is valid for a minute and once. Servers with the same tokens accept each other's.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import parse_qs, urlencode

#: How long a link is valid.
VALID_S = 60
_SIGNATURE = "&signature="


class Links:
    """Makes and checks links for those who know one of *tokens*."""

    def __init__(self, tokens: Iterable[bytes], clock: Callable[[], float] = time.time) -> None:
        self._key = hashlib.sha256(b"\n".join([b"links of crawlproj", *tokens])).digest()
        self._clock = clock

    def make(self, path: str, query: Mapping[str, str]) -> tuple[str, int]:
        """Return a link to *path*, and when it expires (s)."""
        expires_s = int(self._clock()) + VALID_S
        words = urlencode({**query, "expires": expires_s, "once": secrets.token_hex(16)})
        return f"{path}?{words}{_SIGNATURE}{self._sign(path, words)}", expires_s

    def is_valid(self, path: str, query: str) -> bool:
        """Whether *query* has a signature of this *path* that has not expired."""
        words, _, signature = query.rpartition(_SIGNATURE)
        if not hmac.compare_digest(self._sign(path, words).encode(), signature.encode()):
            return False
        return int(parse_qs(words)["expires"][0]) > self._clock()

    def _sign(self, path: str, words: str) -> str:
        return hmac.new(self._key, f"{path}?{words}".encode(), "sha256").hexdigest()


def is_link(query: str) -> bool:
    return _SIGNATURE in query
