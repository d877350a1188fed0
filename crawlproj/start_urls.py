"""Start URLs that people push onto a Redis list, as scrapy-redis has it: `<spider>:start_urls`."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable

from scrapy import FormRequest, Request

from crawlproj.errors import BadUrl, RequestNotSerialisable
from crawlproj.model.urls import canonicalise
from crawlproj.redisio.client import Door

logger = logging.getLogger(__name__)

#: A start URL may say how deep it is; more than this is nobody's depth.
_MOST_DEPTH = 1_000_000
_LOOK_S = 30.0


async def read_start_urls(
    door: Door, source: str, taken: str, admit: Callable[[Request], Awaitable[None]]
) -> None:
    """Hand the requests of the list *source* to *admit*, for ever.

    Each waits in the list *taken* until it was admitted: what a process that was killed leaves there is read
    by the next one.
    """
    left = await door.command("LRANGE", taken, 0, -1)
    while True:
        for line in left:
            try:
                await admit(_start_request(line))
            except (BadUrl, RequestNotSerialisable, RecursionError) as exc:  # the last: JSON nested for ever
                logger.error("start URL refused: %s", exc)
            await door.command("LREM", taken, 1, line)
        line = await door.block("BLMOVE", source, taken, "LEFT", "RIGHT", timeout_s=_LOOK_S)
        # None may also mean that a line was moved and the answer lost with its connection.
        left = [line] if line else await door.command("LRANGE", taken, 0, -1)


def _start_request(line: bytes) -> Request:
    """Return the request for a line of `start_urls`: a URL, or a JSON object as scrapy-redis reads it."""
    text = line.decode(errors="replace").strip()
    if not text.startswith("{"):
        return Request(canonicalise(text), dont_filter=True)
    try:
        values = json.loads(text)
        url = canonicalise(values.pop("url"))
        method = str(values.pop("method", "GET")).upper()
        meta = values.pop("meta", {})
        if not 0 <= int(meta.get("depth", 0)) <= _MOST_DEPTH:
            raise ValueError(f"depth {meta['depth']}")
        if method == "GET" and not values:
            return Request(url, dont_filter=True, meta=meta)
        return FormRequest(url, dont_filter=True, method=method, formdata=values, meta=meta)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as exc:
        # Nothing else may get out: the line would stay, and stop whoever finds it next.
        raise BadUrl(
            f"{text!r} is not a JSON object with a 'url', and if need be 'meta' (an object, its 'depth' a "
            "number), 'method' and form fields (texts)"
        ) from exc
