"""The Scrapy scheduler: scrapy-redis' by inheritance, over the frontier instead of its blocking queue.

The engine's calls touch memory only; the feed's task talks to Redis. See docs/decisions/0003.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.utils.defer import deferred_from_coro
from scrapy_redis.scheduler import Scheduler as RedisScheduler
from twisted.internet.defer import Deferred

from crawlproj import fastpath, seams
from crawlproj.config import Config, load_config
from crawlproj.download.handler import connections_of
from crawlproj.errors import (
    BadArgument,
    BadUrl,
    CrawlError,
    Fenced,
    NoSeeds,
    RedisAway,
    RequestNotSerialisable,
)
from crawlproj.frontier.addresses import AddressGate
from crawlproj.frontier.feed import Feed, FeedLimits
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.gate import Gate, Robots, RobotsFetch
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.frontier.robots import RobotsStore
from crawlproj.frontier.traps import TrapDetector
from crawlproj.model.records import Candidate, Lease, Outcome
from crawlproj.model.urls import canonicalise, domain_of_host
from crawlproj.pages.envelope import pack
from crawlproj.politeness.pacing import DelayRules, DomainRule, Pacer
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.redisio.names import ProcessName
from crawlproj.requests import decode_request, encode_request
from crawlproj.robotstxt import RobotsTxt, is_for_another
from crawlproj.runs import Leader, Run
from crawlproj.runs.gauges import run_gauges
from crawlproj.runs.presence import Presence
from crawlproj.start_urls import read_start_urls

logger = logging.getLogger(__name__)

#: Where a request keeps its lease.
LEASE = "crawl_lease"
#: The slot all our requests share: the frontier is the clock, Scrapy's slots must add no delay.
_SLOT = "*"
#: What every request of ours carries.
_PACED = {"download_slot": _SLOT, "download_paced": True}
#: Origins whose robots.txt is kept in memory.
_ROBOTS_ORIGINS = 20_000
#: How soon an idle shard looks whether the run is over.
_LEAD_S = 0.5
#: How often a shard that tells metrics takes or keeps the lead, which is lost after 5 s.
_KEEP_LEAD_S = 2.0
#: How often a shard looks whether its supervisor is still there.
_WATCH_S = 1.0
#: How long a shard without one may take to leave, beyond what it is given to drain.
_LEAVE_S = 10.0
#: How long a run that was never given a seed waits for one.
_SEED_GRACE_S = 10.0


class Scheduler(RedisScheduler):  # type: ignore[misc]  # scrapy-redis has no types
    """Hands the engine what the feed says may be fetched now, and the feed what the spider yields."""

    def __init__(self, crawler: Crawler) -> None:
        # Not super().__init__(): it wants a connected, blocking client.
        self.crawler = crawler
        self.stats: Any = crawler.stats
        self._inc = seams.counter_of(self.stats)
        self.feed: Feed | None = None
        self._door: Door | None = None
        self._leader: Leader | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self._presence = crawler.presence = Presence()  # type: ignore[attr-defined]  # where a parser beside us finds it
        self.metrics = self._presence.metrics

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Scheduler:
        return cls(crawler)

    @classmethod
    def from_settings(cls, settings: Any) -> Scheduler:
        raise NotImplementedError("made by from_crawler")

    def __len__(self) -> int:
        return self.feed.pacer.buffered if self.feed else 0

    # -- life --

    def open(self, spider: Spider) -> Deferred[None]:
        return deferred_from_coro(self._open(spider))

    async def _open(self, spider: Spider) -> None:
        self.spider = spider
        try:
            await self._connect(spider)
        except CrawlError as exc:
            self._fail(exc)
            # Not raised here: Scrapy would leave its scraper unopened, and fall over it when closing.
            self.crawler.signals.connect(self._refuse_to_start, signals.spider_opened)

    def _refuse_to_start(self) -> None:
        raise CloseSpider("cannot_start")

    async def _connect(self, spider: Spider) -> None:
        self.config = config = load_config(self.crawler.settings.copy_to_dict())
        self.persist = config.scheduler_persist
        self.flush_on_start = config.scheduler_flush_on_start
        self.idle_before_close = config.scheduler_idle_before_close
        check_arguments = getattr(spider, "check_arguments", None)
        if check_arguments:
            check_arguments()
        shard, shards = _shard_arguments(spider)
        self._door = door = await Door.open(
            url=config.redis_url,
            data_dir=Path(config.data),
            params=config.redis_params,
            wait_s=config.redis_wait_seconds,
        )
        name = keys.check_run_name(getattr(spider, "run", "") or config.run or spider.name)
        run = await Run.open(door, name, partitions=config.partitions, shards=shards)
        run = await self._settle_shards(run, shard, shards)
        self.run = run
        process = ProcessName.of_this()
        ttl_ms = int(config.shard_lease_seconds * 1000)
        gate = Gate(
            door,
            name,
            run.partitions,
            robots=_robots(config, door, run),
            traps=TrapDetector(config.trap_variants) if hasattr(spider, "failure_of") else None,
            refusal=getattr(spider, "refusal_of", _allow),
        )
        self.feed = Feed(
            Frontier(
                door,
                name,
                run.partitions,
                domain_pages=config.domain_pages,
                domain_bytes=config.domain_bytes,
                trapped_urls=config.parked_urls,
            ),
            ShardNumber(door, name, shard, process, ttl_ms, self._tell_figures),
            run.read_map,
            Pacer(_delay_rules(config)),
            gate,
            FeedLimits(
                batch=config.lease_batch,
                chain=config.chain,
                chain_s=config.chain_seconds,
                lease_s=config.lease_seconds,
                shard_lease_s=config.shard_lease_seconds,
                max_attempts=config.max_attempts,
                flight_s=config.download_timeout,
                queue_soft=config.page_queue_soft,
                queue_hard=config.page_queue_hard,
                queue_soft_bytes=config.page_queue_soft_bytes,
                queue_hard_bytes=config.page_queue_hard_bytes,
            ),
            promises=run,
            failure_page=self._failure_page,
            metrics=self.metrics,
            on_work=self._wake,
            on_end=self._on_end,
        )
        self._robots = RobotsTxt(self.feed, config.robots_agent, follows_sitemaps=config.sitemaps)
        self.crawler.feed = self.feed  # type: ignore[attr-defined]  # where pipelines and middlewares find it
        if config.ip_delay:
            # Where the download handler finds it.
            self.crawler.address_gate = AddressGate(door, name, config.ip_delay)  # type: ignore[attr-defined]
        # A run that had ended goes on. Said before the feed looks, or it would leave at once; and not before
        # the number is ours, or a shard that is refused would wake the run for nobody.
        await self.feed.number.claim()
        self._show_metrics(run, self.feed)
        # Not by a child of `scrapy run`, which has said so: a run that was stopped while this one started
        # must stay so.
        if not config.supervisor:
            alive = (await run.read_map()).alive.values()
            # Of several that start together none may count the time nobody was there.
            await run.begin(is_first=all(holder.starting for holder in alive))
        await self.feed.open()
        engine = self.crawler.engine
        assert engine is not None
        engine.downloader.per_slot_settings[_SLOT] = {
            "concurrency": config.concurrent_requests,
            "delay": 0,
            "jitter": 0,
        }
        seams.keep_cookies_at_home()
        seams.attach(engine, on_leave=self._on_leave, on_closing=self._on_closing)
        if config.fast:
            fastpath.take_over(self.crawler, engine)
        self.crawler.signals.connect(self._on_idle, signals.spider_idle)
        self._leader = leader = Leader(run, process, min(ttl_ms, 5000), self.idle_before_close)
        self._tasks = [
            asyncio.create_task(self._lead(leader), name="leader"),
            asyncio.create_task(self._read_start_urls(door), name="start urls"),
        ]
        if config.metrics_port:
            self._tasks.append(asyncio.create_task(self._tell_run(leader), name="run figures"))
        if config.supervisor:
            self._tasks.append(asyncio.create_task(self._watch_supervisor(config.supervisor), name="watch"))
        logger.info(
            "shard %d opened run %s",
            shard,
            name,
            extra={"shard": shard, "run": name, "partitions": run.partitions, "redis": door.where},
        )

    def _show_metrics(self, run: Run, feed: Feed) -> None:
        metrics = self.metrics
        metrics.active_downloads = lambda: feed.held - feed.pacer.buffered
        metrics.buffered_urls = lambda: feed.pacer.buffered
        metrics.heartbeat_age_seconds = lambda: feed.heartbeat_age_s
        self._presence.show(self.config, run, "shard", feed.number.number)
        self._presence.figures.descriptors.tell_by(lambda: connections_of(self.crawler))

    async def _settle_shards(self, run: Run, shard: int, shards: int | None) -> Run:
        """Bring what was asked for and what the run has into agreement, or refuse."""
        run_map = await run.read_map()
        if self.flush_on_start and not run_map.alive:
            await run.delete()
            run = await Run.open(run.door, run.name, partitions=run.partitions, shards=shards)
            run_map = await run.read_map()
        if shards is not None and shards != run_map.shards:
            if run_map.alive:
                logger.warning(
                    "run %s has %d shards, -a shards=%d is ignored; to change it: scrapy shards %d --run %s",
                    run.name,
                    run_map.shards,
                    shards,
                    shards,
                    run.name,
                )
            else:
                await run.set_shards(shards)
                run_map.shards = shards
        if shard >= run_map.shards:
            raise BadArgument(
                f"Shard {shard} is out of range: the shards of run {run.name!r} are numbered 0 to "
                f"{run_map.shards - 1}. To have more: scrapy shards {shard + 1} --run {run.name}"
            )
        return run

    def close(self, reason: str) -> Deferred[None]:
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        own = asyncio.current_task()
        others = [task for task in self._tasks if task is not own]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self.feed is not None:
            try:
                await self.feed.close()
                if self._leader is not None:
                    await self._leader.step_down()
                # The last one out; where two leave at once, the other may have done it.
                is_last = reason == "finished" and not self.persist and await self.run.state()
                if is_last and not (await self.run.read_map()).alive:
                    await self.run.delete()
            except CrawlError as exc:
                logger.error(
                    "leases could not be given back: %s; they are lent again when their hold ends", exc
                )
        self._presence.close()
        if self._door is not None:
            await self._door.close()

    def flush(self) -> None:
        raise NotImplementedError("SCHEDULER_FLUSH_ON_START and SCHEDULER_PERSIST say when a run is deleted")

    # -- the engine's calls --

    def next_request(self) -> Request | None:
        if self.feed is None:
            return None
        while (found := self.feed.take()) is not None:
            if isinstance(found, RobotsFetch):
                request = self._robots.request(found)
                request.meta.update(_PACED)
                return request
            try:
                request = self._request_of(found)
            except Exception as exc:  # noqa: BLE001  # whatever the spider of today makes of a request of yesterday
                logger.error("lease dropped: %s cannot be made a request again: %r", found.url, exc)
                self.feed.judge(found, Outcome.FAILED, "bad_request")
                self.feed.finish(found)
                continue
            self._inc("scheduler/dequeued/redis")
            return request
        return None

    def enqueue_request(self, request: Request) -> bool:
        """Admit a request with the next turn. Whether it is a duplicate is known only then."""
        if self.feed is None:
            return False
        try:
            candidate = self._candidate(request)
        except (BadUrl, RequestNotSerialisable) as exc:
            logger.error("request dropped: %s", exc)
            self.stats.inc_value("scheduler/refused")
            return False
        self.feed.add([candidate])
        self._inc("scheduler/enqueued/redis")
        return True

    def has_pending_requests(self) -> bool:
        return self.feed is not None and not self._is_over and self.feed.has_work

    # -- inside --

    def _request_of(self, lease: Lease) -> Request:
        make = getattr(self.spider, "request_of", None)
        request: Request
        if is_for_another(lease):
            request = self._robots.request_elsewhere(lease)
        else:
            request = make(lease) if make else decode_request(lease.url, lease.extra, self.spider)
        meta = request.meta
        meta[LEASE] = lease
        meta["depth"] = lease.depth
        meta.update(_PACED)
        return request

    def _candidate(self, request: Request) -> Candidate:
        url = canonicalise(request.url)
        extra = encode_request(request, self.spider)
        mark: int | None = None
        if not request.dont_filter:
            print_of = self.crawler.request_fingerprinter
            assert print_of is not None
            mark = int.from_bytes(print_of.fingerprint(request)[:8], "big") >> 1
        return Candidate(url, int(request.meta.get("depth", 0)), request.priority, extra, mark)

    def _failure_page(self, lease: Lease, reason: str) -> bytes:
        make = getattr(self.spider, "failure_of", None)
        return pack(make(lease, reason)) if make else b""

    def _tell_figures(self) -> dict[str, Any]:
        feed = self.feed
        assert feed is not None
        return self._presence.figures.tell(
            self.stats.get_value("response_received_count", 0),
            bytes=self.metrics.fetched_bytes,
            in_flight=feed.held - feed.pacer.buffered,
            buffered=feed.pacer.buffered,
        )

    def _on_leave(self, request: Request) -> None:
        """A request has left the engine for good: everything that came of it is in the feed's hands."""
        assert self.feed is not None
        lease = request.meta.get(LEASE)
        if isinstance(lease, Lease):
            self.feed.finish(lease)
        else:
            self._robots.left(request)

    def _wake(self) -> None:
        if self.crawler.engine is not None:
            seams.wake(self.crawler.engine)

    def _on_idle(self) -> None:
        if not self._is_over:
            raise DontCloseSpider

    def _on_end(self, reason: str, error: CrawlError | None) -> None:
        """The feed came to its end: the run is over, or this shard must go."""
        self._is_over = True
        if error is not None:
            self._fail(error)
            reason = {Fenced: "fenced", RedisAway: "redis_away"}.get(type(error), "error")
        self._close_task = asyncio.create_task(self._close_spider(reason), name="close spider")

    def _on_broken(self, error: Exception) -> None:
        """A task of ours cannot go on, and this shard not without it."""
        if not isinstance(error, CrawlError):
            logger.error("a task of the scheduler broke", exc_info=error)
            error = CrawlError(f"a task of the scheduler broke: {error!r}")
        self._on_end("error", error)

    async def _close_spider(self, reason: str) -> None:
        engine = self.crawler.engine
        assert engine is not None
        if engine.spider is not None:
            await engine.close_spider_async(reason=reason)

    def _fail(self, error: CrawlError) -> None:
        shard = getattr(self.spider, "shard", 0)
        logger.error("shard %s stops: %s", shard, error)
        seams.exit_with(error.exit_code)

    def _on_closing(self) -> None:
        self._tasks.append(asyncio.create_task(self._drain(), name="drain"))

    async def _drain(self) -> None:
        """Give downloads in flight their time, then leave without them."""
        assert self.feed is not None
        await asyncio.sleep(self.config.drain_seconds)
        logger.warning("downloads in flight were cut after CRAWL_DRAIN_SECONDS=%g", self.config.drain_seconds)
        await self._close("drained")
        seams.stop_reactor()

    async def _lead(self, leader: Leader) -> None:
        """While this shard has nothing to do, find out whether anybody has."""
        feed, engine = self.feed, self.crawler.engine
        assert feed is not None
        assert engine is not None
        pause_s = _LEAD_S
        idle_s = 0.0
        try:
            while True:
                await asyncio.sleep(pause_s)
                if feed.starting and seams.start_is_exhausted(engine) and not feed.has_unsent:
                    feed.stop_starting()
                is_idle = not feed.has_work and not feed.starting
                if is_idle and not idle_s:
                    # Handlers of spider_idle may bring more; the engine by itself looks only every 5 s.
                    self._wake()
                idle_s = idle_s + pause_s if is_idle else 0.0
                pause_s = min(pause_s * 1.5, 2.0) if is_idle else _LEAD_S
                # A run without limits cannot end while this shard has work.
                if not (is_idle or feed.has_limits) or not await leader.lead():
                    continue
                if await leader.step():
                    return
                if leader.never_seeded and idle_s >= _SEED_GRACE_S:
                    raise NoSeeds(
                        f"Run {self.run.name!r} was never given a seed. Add some: "
                        f"scrapy seed --run {self.run.name} FILE-OR-URL"
                    )
                if leader.is_quiet:
                    # Only somebody from outside can bring work now, and that wakes us.
                    pause_s = min(max(_LEAD_S, self.idle_before_close - idle_s), max(pause_s, idle_s / 2))
        except Exception as exc:  # noqa: BLE001  # without a leader the run would never end, and nobody be told
            self._on_broken(exc)

    async def _tell_run(self, leader: Leader) -> None:
        """While this shard leads, tell the figures of the run with its own."""
        config, told_s, is_well = self.config, float("-inf"), True
        while True:
            try:
                if not await leader.lead():
                    self.metrics.run_figures = {}
                elif self.feed is not None and time.monotonic() - told_s >= config.figures_seconds:
                    told_s = time.monotonic()
                    self.metrics.run_figures = await run_gauges(self.run, config)
                is_well = True
            except CrawlError as exc:
                # Old figures would be taken for new ones.
                self.metrics.run_figures = {}
                if is_well:
                    logger.warning("the figures of the run cannot be told: %s", exc)
                is_well = False
            await asyncio.sleep(min(_KEEP_LEAD_S, config.figures_seconds))

    async def _watch_supervisor(self, pid: int) -> None:
        """Leave as on SIGTERM when the process that started this one is gone: nobody watches over it now."""
        while os.getppid() == pid:  # noqa: ASYNC110  # no event tells that a parent died
            await asyncio.sleep(_WATCH_S)
        logger.error("the supervisor, process %d, is gone; this shard leaves, too", pid)
        signal.raise_signal(signal.SIGTERM)
        # The second is for a shard that cannot leave, as Redis is away; nobody else would send it.
        limit_s = self.config.drain_seconds + _LEAVE_S
        asyncio.get_running_loop().call_later(limit_s, signal.raise_signal, signal.SIGTERM)

    async def _read_start_urls(self, door: Door) -> None:
        assert self.feed is not None
        source = getattr(self.spider, "redis_key", None) or keys.start_urls(self.spider.name)
        taken = keys.start_urls_taken(self.run.name, self.feed.number.number)
        try:
            await read_start_urls(door, source, taken, self._admit_start)
        except Exception as exc:  # noqa: BLE001  # people would push URLs and never hear of them again
            self._on_broken(exc)

    async def _admit_start(self, request: Request) -> None:
        assert self.feed is not None
        await self.feed.admit_now([self._candidate(request)])


def _allow(url: str) -> str | None:
    return None


def _shard_arguments(spider: Spider) -> tuple[int, int | None]:
    """Return -a shard and -a shards, checked."""
    numbers: list[int | None] = []
    for name, least in (("shard", 0), ("shards", 1)):
        value = getattr(spider, name, None)
        if value in (None, ""):
            numbers.append(None)
        elif str(value).isdigit() and int(value) >= least:
            numbers.append(int(value))
        else:
            raise BadArgument(f"-a {name}={value} is not a whole number from {least}.")
    shard, shards = numbers
    shard = shard or 0
    if shards is not None and shard >= shards:
        raise BadArgument(
            f"-a shard={shard} is out of range: with -a shards={shards} it is 0 to {shards - 1}."
        )
    return shard, shards


def _domain_rules(config: Config) -> dict[str, DomainRule]:
    """Return what DOWNLOAD_SLOTS says, by domain. Of two hosts of one domain the slower counts."""
    rules: dict[str, DomainRule] = {}
    for host, slot in config.download_slots.items():
        domain = domain_of_host(host.lower())
        rule = DomainRule(float(slot.get("delay", config.download_delay)), int(slot.get("concurrency", 1)))
        other = rules.get(domain, rule)
        rules[domain] = DomainRule(max(rule.delay_s, other.delay_s), min(rule.at_once, other.at_once))
    return rules


def _delay_rules(config: Config) -> DelayRules:
    return DelayRules(
        delay_s=config.download_delay,
        domains=_domain_rules(config),
        factor=config.delay_factor,
        max_delay_s=config.max_delay_seconds,
        backoff_s=config.backoff_seconds,
        max_backoff_s=config.max_backoff_seconds,
        give_up=config.give_up_failures,
        parked_s=config.parked_seconds,
    )


def _robots(config: Config, door: Door, run: Run) -> Robots | None:
    if not config.robotstxt_obey:
        return None
    agent = config.robots_agent
    return Robots(
        agent,
        RobotsCache(
            _ROBOTS_ORIGINS,
            config.robots_seconds,
            config.backoff_seconds,
            # A domain that comes back from being parked must not keep the run waiting for its robots.txt.
            max_retry_s=config.parked_seconds,
        ),
        RobotsStore(door, run.name, run.partitions, config.robots_bytes, agent),
    )
