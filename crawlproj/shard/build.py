"""Makes the feed of a shard, with all its parts, from the options of the crawl."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

from crawlproj.config import Config
from crawlproj.errors import CrawlError
from crawlproj.frontier.admission import AdmissionRules
from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.exclusions import Exclusions
from crawlproj.frontier.feed import Feed
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.gate import Gate, Robots
from crawlproj.frontier.neighbours import Neighbours
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.frontier.pressure import FeedLimits, QueueLimits
from crawlproj.frontier.robots import RobotsStore
from crawlproj.frontier.scope import Sites
from crawlproj.frontier.traps import TrapDetector
from crawlproj.observe.metrics import Metrics
from crawlproj.pages.envelope import pack
from crawlproj.politeness.pacing import DelayRules, Pacer, domain_rules
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio.room import brim_of
from crawlproj.runs import Run, RunMap
from crawlproj.shard.results import Results

#: Origins whose robots.txt is kept in memory.
_ROBOTS_ORIGINS = 20_000


def make_gate(
    config: Config, run: Run, rules: AdmissionRules, exclusions: Exclusions | None, *, is_page_spider: bool
) -> Gate:
    """Return the gate of a shard: robots.txt, and for a `PageSpider` also its rules for URLs, and traps."""
    make = partial(Gate, run.client, run.name, run.partitions, robots=_robots(config, run))
    if not is_page_spider:
        return make()

    def refusal(url: str) -> str | None:
        if exclusions is not None:
            exclusions.reload_if_changed(time.monotonic())
        return rules.refusal(url, 0, None)

    return make(traps=TrapDetector(config.trap_variants), refusal=refusal)


def make_feed(
    config: Config,
    run: Run,
    number: ShardNumber,
    gate: Gate,
    metrics: Metrics,
    *,
    read_map: Callable[[], Awaitable[RunMap]],
    failures: Results | None,
    on_work: Callable[[], None],
    on_stop: Callable[[str, CrawlError | None], None],
) -> Feed:
    """Return the feed and its dispatcher.

    *failures* makes the pages of URLs that are not fetched; None for a spider that handles links itself.
    """
    dispatcher = Dispatcher(
        Pacer(delay_rules(config)),
        gate,
        batch=config.lease_batch,
        chain_s=config.chain_seconds,
        max_attempts=config.max_attempts,
        metrics=metrics,
        egress_s=config.shard_lease_seconds / 2,
        failure_page=lambda lease, reason: pack(failures.failure(lease, reason)) if failures else b"",
        on_work=on_work,
    )
    limits = FeedLimits(
        batch=config.lease_batch,
        chain=config.chain,
        chain_s=config.chain_seconds,
        lease_s=config.lease_seconds,
        shard_lease_s=config.shard_lease_seconds,
        flight_s=config.download_timeout,
        answer_s=config.header_seconds,
        queue=QueueLimits(
            config.page_queue_soft,
            config.page_queue_hard,
            config.page_queue_soft_bytes,
            config.page_queue_hard_bytes,
            redis_share=brim_of(config.spill_share),
        ),
    )
    frontier = Frontier.of(run, config)
    # In a Redis Cluster no step can read the domains of two runs.
    if config.share_delays and len(run.client.stripes) == 1:
        silent_s = config.shard_lease_seconds + config.download_timeout
        frontier.neighbours = Neighbours(run.client, run.name, run.partitions, silent_s)
    if failures is not None:
        frontier.sites = Sites.of(run, config, counts=True)
    return Feed(frontier, number, read_map, dispatcher, limits, promises=run, on_stop=on_stop)


def _robots(config: Config, run: Run) -> Robots | None:
    if not config.robotstxt_obey:
        return None
    agent = config.robots_agent
    cache = RobotsCache(
        _ROBOTS_ORIGINS,
        config.robots_seconds,
        config.backoff_seconds,
        # A domain that comes back from being parked must not keep the run waiting for its robots.txt.
        max_retry_s=config.parked_seconds,
    )
    return Robots(agent, cache, RobotsStore(run.client, run.name, run.partitions, config.robots_bytes, agent))


def delay_rules(config: Config) -> DelayRules:
    return DelayRules(
        delay_s=config.download_delay,
        domains=domain_rules(config),
        factor=config.delay_factor,
        max_delay_s=config.max_delay_seconds,
        backoff_s=config.backoff_seconds,
        max_backoff_s=config.max_backoff_seconds,
        give_up=config.give_up_failures,
        parked_s=config.parked_seconds,
    )
