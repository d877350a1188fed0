"""Cookies for a redirect that wants its own cookies back. There is no cookie jar."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import parsedate_to_datetime

from crawlproj.model.urls import host_of

#: They are stored in the frontier with their URL.
_MOST_CHARS = 4096


def cookie_header(set_cookies: Iterable[bytes], url: str, now_s: float, before: str) -> str:
    """Return the Cookie header for another request to the origin of *url*, which sent *set_cookies*.

    *before* is the Cookie header of the last request; cookies set again are replaced, expired ones dropped.
    So are cookies for other hosts, secure ones on http, and those that exceed 4 KB. Paths are ignored.
    """
    pairs = dict(pair.split("=", 1) for pair in before.split("; ") if "=" in pair)
    for line in set_cookies:
        pair, *parts = line.decode("latin-1").split(";")
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not name or not equals or not all(" " <= character != "\x7f" for character in name + value):
            continue
        attributes: dict[str, str] = {}
        for part in parts:
            key, _, text = part.partition("=")
            attributes[key.strip().lower()] = text.strip()
        if not _is_sent_to(url, attributes):
            continue
        pairs.pop(name, None)
        size = sum(len(key) + len(kept) + 3 for key, kept in pairs.items())
        if not _has_expired(attributes, now_s) and size + len(name) + len(value) + 1 <= _MOST_CHARS:
            pairs[name] = value
    return "; ".join(f"{name}={value}" for name, value in pairs.items())


def _is_sent_to(url: str, attributes: dict[str, str]) -> bool:
    domain = attributes.get("domain", "").lower().removeprefix(".")
    is_same_site = not domain or f".{host_of(url)}".endswith(f".{domain}")
    return is_same_site and not ("secure" in attributes and url.startswith("http:"))


def _has_expired(attributes: dict[str, str], now_s: float) -> bool:
    """Whether the cookie has expired. Max-Age takes precedence over Expires."""
    age = attributes.get("max-age", "")
    if age.removeprefix("-").isdecimal():
        return age.startswith("-") or not age.strip("0")
    try:
        return parsedate_to_datetime(attributes.get("expires", "")).timestamp() <= now_s
    except (ValueError, TypeError, OverflowError):
        return False
