"""Every Redis key of the project: one function each, whose docstring says type, content and lifetime.

A run has ``STRIPES`` stripes; partition p belongs to stripe ``p % STRIPES``. Keys of a stripe share the hash
tag ``{run:xx}``, keys of a run the tag ``{run}``, keys of an IP address the tag ``{run:address}``: each group
lives in one slot of a Redis Cluster. There the pages of each stripe have keys of their own, in its slot; on a
single server (stripe None) all pages of a run share one set of keys.
``python -m crawlproj.redisio.keys`` prints docs/keyspace.md.
"""

from __future__ import annotations

import inspect
import re
import sys
from binascii import crc_hqx
from functools import lru_cache
from itertools import product

from crawlproj.config import RUN_NAME
from crawlproj.errors import BadArgument

#: The stripe of a key; None: the run is not striped, since all of it is on one server.
Stripe = int | None
#: How many slots of a Redis Cluster a run is spread over. Part of every key of a partition: never changes.
STRIPES = 16
SLOTS = 16384
#: How far the slot of a stripe may be from the middle of its part of the slots.
_SLACK = 128
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def check_run_name(run: str) -> str:
    if not RUN_NAME.fullmatch(run):
        raise BadArgument(
            f"{run!r} is not a valid run name; use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit."
        )
    return run


def stripe_of(partition: int) -> int:
    return partition % STRIPES


@lru_cache(maxsize=8192)
def slot_of(key: str | bytes) -> int:
    """Return the slot of *key* in a Redis Cluster."""
    data = key.encode() if isinstance(key, str) else key
    tag = re.search(rb"\{([^}]+)\}", data) if b"{" in data else None
    # Redis looks at the first brace only.
    if tag is not None and tag.start() == data.index(b"{"):
        data = tag[1]
    return crc_hqx(data, 0) % SLOTS


#: What `meta` holds besides counters.
META_FIELDS = frozenset({"owner", "epoch", "until", "sleep", "clock", "wall", "mine", "server", "rested"})


def meta(run: str, partition: int) -> str:
    """hash · owner, epoch (``number:owner``) and until (ms by the server's clock); the time of the partition: `clock`, and when that was written by the server's clock, `wall`, and by the owner's, `mine` (ms); `server`, the run id of the Redis in which it was acquired; `rested`, the time before which nothing is leased; counters, `parked:REASON` of domains; `sleep`, the time at which the owner looks again without being woken · kept with the run"""
    return _partition(run, partition, "meta")


def ready(run: str, partition: int) -> str:
    """zset · domains with URLs waiting and none leased, scored by the time they may be fetched (ms), but for newcomers · kept with the run"""
    return _partition(run, partition, "ready")


def newcomers(run: str, partition: int) -> str:
    """list · ``time domain`` of domains with URLs waiting that were never leased, parked or made to rest, and when they came (ms), first come first; others are dropped when it is their turn · until leased"""
    return _partition(run, partition, "newcomers")


def domains(run: str, partition: int) -> str:
    """hash · domain → ``next out fails admitted fetched delay bytes parked``: time due (ms), URLs leased, failures in a row, URLs admitted, URLs fetched, delay (ms), bytes fetched, why it is parked (``-``: it is not); then its URLs that wait, if they take at most 256 bytes: a line each, the lane and the entry, first come first; an empty line if they are in lists · kept with the run"""
    return _partition(run, partition, "domains")


def leases(run: str, partition: int) -> str:
    """zset · ``number lane domain entry`` of every URL leased to the owner, scored by number · until settled"""
    return _partition(run, partition, "leases")


def seen_prefix(run: str, partition: int) -> str:
    """prefix of sets · + bucket number: marks (63-bit integers) of all URLs ever admitted: fingerprints, or numbers of their own for those that may be fetched again; buckets are split as they fill, so that each stays an intset · kept with the run"""
    return _partition(run, partition, "seen:")


def queue_prefix(run: str, partition: int) -> str:
    """prefix of lists · + ``lane:domain``: entries (``depth attempt url [json]``) waiting, head first, of a domain that has more of them than its state holds · until leased"""
    return _partition(run, partition, "q:")


def parked(run: str, partition: int) -> str:
    """zset · parked domains, scored by the time they are released (ms; infinity: only by `scrapy parked`) · until released"""
    return _partition(run, partition, "parked")


def trapped(run: str, partition: int) -> str:
    """zset · ``reason lane domain entry`` of suspected trap URLs, scored by the time they were found (ms); bounded · until released"""
    return _partition(run, partition, "trapped")


def traps(run: str, partition: int) -> str:
    """hash · ``domain shape`` → why URLs of this shape are suspected traps · until released"""
    return _partition(run, partition, "traps")


def sites(run: str, partition: int) -> str:
    """set · with CRAWL_SCOPE=sites: the hosts of seeds, and of what seeds redirect to, without a leading `www.`; links to them and to the hosts below them are followed · kept with the run"""
    return _partition(run, partition, "sites")


def robots(run: str, partition: int) -> str:
    """hash · origin → ``expires failures rules``: time (ms), failed fetches of its robots.txt in a row, packed rules; ``bytes`` → the size of all of them; bounded · until a day after they expire, or evicted"""
    return _partition(run, partition, "robots")


def robots_ages(run: str, partition: int) -> str:
    """zset · the origins of the hash above, scored by the time their rules expire (ms) · as long as the rules"""
    return _partition(run, partition, "robots-ages")


def run_record(run: str) -> str:
    """hash · version, `server` (the run id of the Redis it was created in), partitions, shards (`asked`: as `scrapy shards` said; else as many as the members brought), state, reason, limits (`max_*`), `rules`: its settings, spider and their changes as JSON (docs/rules.md), `sites_ms`: when a site was last added to its scope, `additions`: how often work was added from outside, `since_ms` and `ran_ms`: how long it has been running, when it entered each state · until the run is deleted"""
    return _run(run, "run")


def shard(run: str, number: int) -> str:
    """string · ``instance json`` of the process that holds the shard number · expires unless renewed"""
    return _run(run, f"shard:{number}")


def leader(run: str) -> str:
    """string · ``instance json`` of the process that decides when the run has ended · expires unless renewed"""
    return _run(run, "leader")


def members(run: str) -> str:
    """hash · instance → ``at joined shards JSON`` of a supervisor: when it was last heard of and when it joined (ms), how many shards it brings, its heartbeat · removed when it exits, or by the others when it is silent"""
    return _run(run, "members")


def numbers(run: str) -> str:
    """hash · shard number → instance of the member it is given to; empty: given up, and free · kept with the run"""
    return _run(run, "numbers")


def pages(run: str, stripe: Stripe = None) -> str:
    """list · page envelopes waiting for a parser, oldest first; ``failed N envelope`` of a page that has failed in a parser N times · until taken"""
    return _page(run, stripe, "pages")


def pages_taken(run: str, parser: str, stripe: Stripe = None) -> str:
    """list · page envelopes a parser has taken and not yet stored · until its segment is committed, or they are reclaimed"""
    return _page(run, stripe, f"taken:{parser}")


def parsers(run: str, stripe: Stripe = None) -> str:
    """hash · parser → JSON heartbeat · removed when the parser exits or is found dead"""
    return _page(run, stripe, "parsers")


def dead_letters(run: str, stripe: Stripe = None) -> str:
    """hash · page → JSON: url, error, parser and time of a page that failed for good · until replayed, deleted, or on disk"""
    return _page(run, stripe, "dead")


def dead_pages(run: str, stripe: Stripe = None) -> str:
    """hash · page → the envelope of a dead letter; with the hash above at most CRAWL_DEAD_LETTER_BYTES · until replayed, deleted, or on disk"""
    return _page(run, stripe, "dead-pages")


def dead_ages(run: str, stripe: Stripe = None) -> str:
    """zset · the dead letters of the hashes above, scored by their time (ms); the oldest go to disk first · as long as they"""
    return _page(run, stripe, "dead-ages")


def dead_moves(run: str, stripe: Stripe = None) -> str:
    """hash · file of a dead letter → ``in`` when it has left Redis for this file, ``out`` when it was replayed from it · until the file has its name or is removed"""
    return _page(run, stripe, "dead-moves")


def segments(run: str, stripe: Stripe = None) -> str:
    """hash · segment file name → ``pages [host, data, files]``: how many pages it holds, the machine and data directory (or object store) it is in, its files with size and SHA-256; written in the step that acknowledges those pages · kept with the run"""
    return _page(run, stripe, "segments")


def merger(run: str, place: str, stripe: Stripe) -> str:
    """string · ``instance json`` of the process that merges the segments in this place, a disk or a store · expires unless renewed"""
    return _page(run, stripe, f"merger:{place}")


def witness(run: str, stripe: Stripe = None) -> str:
    """hash · client → how many of its round trips Redis has carried out, in a Redis Cluster those with steps in this slot; fewer than were acknowledged: Redis was set back · kept with the run"""
    return _page(run, stripe, "witness")


def spills(run: str, stripe: Stripe = None) -> str:
    """hash · file of links that wait on disk for room in Redis → how many, and the host whose disk it is; written in the step that acknowledges the pages they are from · until they are admitted"""
    return _page(run, stripe, "spills")


def page_counters(run: str, stripe: Stripe = None) -> str:
    """hash · pages stored, truncated (`cut`), reclaimed, failed, dead (`dead_bytes`: the size of those in Redis); links; `filtered:REASON`; `queued_bytes`, the size of the page queue · kept with the run"""
    return _page(run, stripe, "page-counters")


def history(run: str) -> str:
    """hash · seconds the run had been running → ``at fetched parsed``: time (ms), pages fetched and parsed until then; at most 300, thinned as the run gets longer · until the run is deleted"""
    return _run(run, "history")


def promises(run: str) -> str:
    """hash · with a page limit, the pages promised: `promised`, `granted`, `back:PROCESS` · kept with the run"""
    return _run(run, "promises")


def wake_channel(run: str) -> str:
    """channel · a partition number when it has work and its owner sleeps, ``map`` when shards, state, limits or rules change, ``over`` when the run has ended"""
    return _run(run, "wake")


def start_urls(spider: str) -> str:
    """list · URLs or JSON objects pushed by users, as with scrapy-redis · until admitted"""
    return f"{spider}:start_urls"


def start_urls_taken(run: str, source: str, number: int) -> str:
    """list · start URLs a shard has taken from the list above and not admitted yet · until admitted, if necessary by the next process with that number"""
    return _beside(source, f"start-urls-taken:{run}:{number}")


def start_urls_dropped(run: str, source: str) -> str:
    """hash · shard → how many start URLs from the list above it has admitted · kept with the run"""
    return _beside(source, f"start-urls-dropped:{run}")


def address(run: str, ip: str) -> str:
    """hash · with CRAWL_IP_DELAY: token, began and until of the request now at this IP address; free, when the next may begin; took, how long requests take; tail, the last place in the queue; turn, the next one promised · expires by itself, whether or not the run is deleted"""
    return _address(run, ip, "address")


def address_line(run: str, ip: str) -> str:
    """zset · domains waiting for this IP address, scored by the time of their place (ms) · expires with the hash above"""
    return _address(run, ip, "line")


def fetching() -> str:
    """hash · run → JSON: its partitions, how long it may be silent, when it was announced; ``:version``, new when a run is · until a run is deleted"""
    return "crawl:fetching"


def runs() -> str:
    """set · names of all runs in this Redis · until a run is deleted"""
    return "crawl:runs"


def job(run: str) -> str:
    """hash · the request that `scrapy serve` took for this run: `token` of the request, `created_ms`, `request` (JSON), `seeds` (lines); `held`, `paused` or `stopped` before it began; `error`, why it cannot be started; `starts` in a row, `started_ms` · until the run is deleted"""
    return f"crawl:{{jobs}}:job:{run}"


def jobs() -> str:
    """zset · runs with a request as above, scored by their creation (ms) · until the run is deleted"""
    return "crawl:{jobs}:all"


def jobs_open() -> str:
    """zset · the same, only those that have not ended: servers start what waits here, oldest first · until it has ended"""
    return "crawl:{jobs}:open"


def job_starter(run: str) -> str:
    """string · ``instance json`` of the server that is starting this run · expires unless renewed"""
    return f"crawl:{{jobs}}:starter:{run}"


def used_link(link: str) -> str:
    """string · a link to a download that was used, so that nobody uses it again · until it has expired"""
    return f"crawl:{{jobs}}:link:{link}"


def job_answer(idempotency_key: str) -> str:
    """string · ``digest run``: the request that came with this idempotency key, and the run it created · a day"""
    return f"crawl:{{jobs}}:key:{idempotency_key}"


def absent(key: str) -> str:
    """none · in a Redis Cluster each Lua step is called with this key of its slot, too: while the slot is moving, no node has all keys of the step, so it waits; otherwise a node may carry it out with half of what it finds by itself · never written"""
    return _beside(key, "absent")


def patterns(run: str) -> list[str]:
    """Return what finds all keys of *run*, and none of another."""
    # With colon and brace, which no run name contains, so that 'exp0' does not match keys of 'exp01'.
    return [
        _run(run, "*"),
        f"crawl:{{{run}:*}}:*",
        _beside("*", f"start-urls-taken:{run}:*"),
        _beside("*", f"start-urls-dropped:{run}"),
    ]


def _partition(run: str, partition: int, name: str) -> str:
    return f"crawl:{{{_tag(run, stripe_of(partition))}}}:p{partition}:{name}"


def _page(run: str, stripe: Stripe, name: str) -> str:
    return _run(run, name) if stripe is None else f"crawl:{{{_tag(run, stripe)}}}:{name}"


@lru_cache(maxsize=4096)
def _tag(run: str, stripe: int) -> str:
    """Return the hash tag of a stripe: the first whose slot is near the middle of its part of all slots.

    So stripes spread evenly over any number of masters; plain numbers would not.
    """
    middle = (2 * stripe + 1) * SLOTS // (2 * STRIPES)
    for length in (2, 3, 4):
        for letters in product(_LETTERS, repeat=length):
            tag = f"{run}:{''.join(letters)}"
            if abs(crc_hqx(tag.encode(), 0) % SLOTS - middle) <= _SLACK:
                return tag
    raise AssertionError(f"no tag for stripe {stripe} of {run}")


def _beside(source: str, name: str) -> str:
    """Return a key in the slot of the key *source*."""
    tag = re.match(r"[^{]*\{([^}]+)\}", source)
    return f"crawl:{{{tag[1] if tag else source}}}:{name}"


def _address(run: str, ip: str, name: str) -> str:
    return f"crawl:{{{run}:{ip}}}:{name}"


def _run(run: str, name: str) -> str:
    return f"crawl:{{{run}}}:{name}"


def _document() -> str:
    sample = {
        "run": "RUN",
        "partition": 0,
        "stripe": None,
        "number": "I",
        "parser": "PARSER",
        "spider": "SPIDER",
        "source": "SPIDER:start_urls",
        "key": "crawl:{RUN:xx}:pages",
        "ip": "IP",
        "idempotency_key": "KEY",
        "link": "ID",
        "place": "PLACE",
    }
    hidden = ("check_run_name", "stripe_of", "slot_of", "patterns")
    lines = [
        "# Keys in Redis",
        "",
        "Generated from `crawlproj/redisio/keys.py`.",
        "",
        f"Partition N belongs to stripe N % {STRIPES}, and each stripe has a different `xx`.",
        "In a Redis Cluster the keys of pages have that tag, too: `crawl:{RUN:xx}:pages`, not `crawl:{RUN}:pages`.",
        "",
        "| key | type · what · lifetime |",
        "|---|---|",
    ]
    for name, function in inspect.getmembers(sys.modules[__name__], inspect.isfunction):
        if name.startswith("_") or function.__module__ != __name__ or name in hidden:
            continue
        key = function(*(sample[parameter] for parameter in inspect.signature(function).parameters))
        key = key.replace(f"{_tag('RUN', 0)}}}:p0", "RUN:xx}:pN")
        lines.append(f"| `{key}` | {(function.__doc__ or '').replace('|', '/')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(_document())
