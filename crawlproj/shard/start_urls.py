"""Start URLs from a Redis list, as in scrapy-redis: `<spider>:start_urls`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from scrapy import FormRequest, Request

from crawlproj.errors import BadUrl, RequestNotSerialisable, SetBack
from crawlproj.model.urls import canonicalise, fingerprint
from crawlproj.redisio import keys
from crawlproj.runs import Run

logger = logging.getLogger(__name__)

#: The greatest depth a start URL may set.
_MOST_DEPTH = 1_000_000
_POLL_S = 30.0
#: How soon to read the list again after Redis was set back.
_SET_BACK_S = 0.2
#: A list may not fit into memory.
_AT_ONCE = 1000


async def read_start_urls(
    run: Run, source: str, shard: int, admit: Callable[[Request, int], Awaitable[None]]
) -> None:
    """Pass the requests of the list *source* to *admit*, each with its mark, forever.

    Each is kept in a list of *shard* until it is admitted: the next process with that number reads what a
    killed one left there. It gives them the same marks, so none is admitted twice.
    """
    client, taken = run.client, keys.start_urls_taken(run.name, source, shard)
    counts = keys.start_urls_dropped(run.name, source)
    # In a Redis Cluster the record of the run is in another slot.
    names = [taken, counts, *([] if len(client.stripes) > 1 else [keys.run_record(run.name)])]
    while True:
        generation = client.generation
        # Read together: the first line is the one after those that were dropped.
        dropped, lines = await client.pipeline(
            [("HGET", counts, shard), ("LRANGE", taken, 0, _AT_ONCE - 1)], transaction=True
        )
        try:
            for number, line in enumerate(lines, int(dropped or 0)):
                try:
                    await admit(_start_request(line), _mark_of(shard, number, line))
                except (BadUrl, RequestNotSerialisable, RecursionError) as exc:  # the last: nested JSON
                    logger.error("start URL refused: %s", exc)
                drop = [shard, number]
                if not await client.run("drop_start_url", names, drop, generation=generation):
                    # Another process with our number did, or the answer was lost.
                    break
            else:
                await client.block("BLMOVE", source, taken, "LEFT", "RIGHT", timeout_s=_POLL_S)
        except SetBack:
            # Also until the shard has started over.
            await asyncio.sleep(_SET_BACK_S)


def _mark_of(shard: int, number: int, line: bytes) -> int:
    """Return the mark of the start URL that *shard* takes as its *number*-th."""
    # No URL, so it is unlike the fingerprint of any.
    return fingerprint(f"start {shard} {number} {line.decode('latin-1')}")


def _start_request(line: bytes) -> Request:
    """Return the request for a line of `start_urls`: a URL, or a JSON object as in scrapy-redis."""
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
        # No other error may escape: the line would stay, and stop the next process, too.
        raise BadUrl(
            f"{text!r} is not a JSON object with 'url' and, optionally, 'meta' (an object, its 'depth' a "
            "number), 'method' and form fields (strings)"
        ) from exc
