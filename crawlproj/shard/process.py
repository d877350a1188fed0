"""One shard: builds its parts when the spider opens, runs its tasks, and stops when its run is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider

from crawlproj.checks import fetch_problems
from crawlproj.config import load_config
from crawlproj.config.foreign import unused_settings
from crawlproj.download.client import client_of, connections_of
from crawlproj.download.errors import LapsedError
from crawlproj.errors import (
    CannotStart,
    CrawlError,
    Fenced,
    RedisUnreachable,
    RequestNotSerialisable,
    RunFinished,
)
from crawlproj.frontier.addresses import AddressGate
from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.feed import Feed
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.model.records import Candidate
from crawlproj.model.run import RunPaths
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Leader, Run, RunState
from crawlproj.runs.rules import foresee, given_rules, is_given
from crawlproj.runs.telemetry import Telemetry
from crawlproj.shard import seams
from crawlproj.shard.arguments import ShardArguments
from crawlproj.shard.background import (
    ProgressLog,
    lead,
    lead_without_seeds,
    publish_run_metrics,
    tune_collector,
    watch_egress,
    watch_supervisor,
)
from crawlproj.shard.build import make_feed, make_gate
from crawlproj.shard.closing import Closing
from crawlproj.shard.context import PageSpider, ShardContext, context_of, set_context
from crawlproj.shard.direct import DirectFetches
from crawlproj.shard.ending import delete_if_last, report_end
from crawlproj.shard.kept import KeptRequests, is_unpaced, may_fetch
from crawlproj.shard.obedience import Obedience, obey
from crawlproj.shard.requests import Marks, candidate_of
from crawlproj.shard.results import Results
from crawlproj.shard.resumption import Resumption
from crawlproj.shard.start_urls import read_start_urls
from crawlproj.shard.stock import StockFetches
from crawlproj.shard.ways import choose_way

logger = logging.getLogger(__name__)


class ShardProcess:
    """A shard, from the spider's opening to its close."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self.dispatcher: Dispatcher | None = None
        self._is_over = self._is_whole = False
        self._crawler = crawler
        self._stats: Any = crawler.stats
        self._count = seams.counter_of(crawler.stats)
        # From the start: it keeps the last logged error.
        self._telemetry = Telemetry()
        self._client: RedisClient | None = None
        self._feed: Feed | None = None
        self._fetches: DirectFetches | StockFetches | None = None
        self._leader: Leader | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._progress: ProgressLog | None = None
        self._restore_collector: Callable[[], None] = lambda: None
        self._resumption = Resumption(crawler)
        self._closing = Closing(crawler)

    @property
    def _engine(self) -> ExecutionEngine:
        engine = self._crawler.engine
        assert engine is not None
        return engine

    # -- opening --

    async def open(self, spider: Spider) -> None:
        self._spider = spider
        try:
            await self._open(spider)
        except CrawlError as exc:
            self._fail(exc)
            self._closing.begin("cannot_start")

    async def _open(self, spider: Spider) -> None:
        self._config = config = load_config(self._crawler.settings.copy_to_dict())
        if isinstance(spider, PageSpider):
            spider.check_arguments()
        arguments = ShardArguments.of(spider, config)
        self._is_whole = arguments.is_whole and not config.supervisor
        self._client = client = await RedisClient.connect(config)
        await self._check(client, arguments.run)
        self._run = run = await self._open_run(client, arguments)
        run.watch()
        agreed = await obey(run, self._crawler, config, is_whole=arguments.is_whole)
        self._config = config = agreed.obeyed_by(config)
        obedience = Obedience(run, self._crawler, agreed, config)
        rules, exclusions = load_rules(config)
        self._process = ProcessName.of_this()
        self._ttl_ms = int(config.shard_lease_seconds * 1000)
        number = ShardNumber(client, run.name, arguments.shard, self._process, self._ttl_ms, self._figures)
        results = Results(run.name, arguments.shard, rules, config.max_redirects, obedience.clock.ms)
        is_page_spider = isinstance(spider, PageSpider)
        self._feed = feed = make_feed(
            config,
            run,
            number,
            make_gate(config, run, rules, exclusions, is_page_spider=is_page_spider),
            self._telemetry.metrics,
            read_map=obedience.read_map,
            failures=results if is_page_spider else None,
            on_work=self._wake,
            on_stop=self._on_stop,
        )
        if isinstance(spider, PageSpider):
            feed.on_set_back = spider.admit_seeds
        self._marks = Marks(self._crawler.request_fingerprinter)
        self._kept = KeptRequests(self._marks, partial(may_fetch, feed, self._engine))
        self.dispatcher = feed.dispatcher
        context = obedience.context = ShardContext(config, run, feed, self._telemetry, rules, results)
        set_context(self._crawler, context)
        pool, dispatcher = client_of(self._crawler).pool, feed.dispatcher
        pool.may_send = lambda: dispatcher.clock() < dispatcher.lapses_at_s
        dispatcher.on_lapse = lambda: pool.abort_exchanges(LapsedError("The hold on its domain has expired."))
        if config.ip_delay:
            client_of(self._crawler).address_gate = AddressGate(client, run.name, config.ip_delay)
        self._fetches = choose_way(self._crawler, spider, context, self._kept, self._count, self._on_closing)
        await self._join_run(feed)
        self._start_tasks(feed, arguments.start_urls_key)
        self._restore_collector = tune_collector()
        logger.info(
            "shard %d opened run %s",
            arguments.shard,
            run.name,
            extra={
                "shard": arguments.shard,
                "run": run.name,
                "partitions": run.partitions,
                "redis": client.where,
            },
        )

    async def _check(self, client: RedisClient, run: str) -> None:
        """Raise CannotStart before anything is made. The rules of a child were checked by its supervisor."""
        config = await foresee(client, run, self._config, given_rules(self._crawler.settings))
        if config.supervisor:
            return
        if problems := list(fetch_problems(config)):
            raise CannotStart(problems)
        for sentence in unused_settings(self._crawler.settings, self._spider.name):
            logger.warning(sentence)

    async def _open_run(self, client: RedisClient, arguments: ShardArguments) -> Run:
        """Open the run and reconcile the arguments with it. Raises BadArgument."""
        name, shards = arguments.run, arguments.shards
        open_run = partial(
            Run.open,
            client,
            name,
            partitions=self._config.partitions,
            shards=shards,
            strict=is_given(self._crawler.settings, "CRAWL_PARTITIONS"),
        )
        # A run is created, and started over, by its supervisor.
        is_child = bool(self._config.supervisor)
        if not is_child and not await Run(client, name, 1).state():
            arguments.check_range(shards or 1, is_new=True)
        run = await open_run(creates=not is_child)
        run_map = await run.read_map()
        if self._config.scheduler_flush_on_start and not is_child and not run_map.alive:
            # Not at module level: it imports what only parsers need.
            from crawlproj.storage.aside import set_aside

            set_aside(RunPaths(self._config.data, name))
            await run.delete()
            run = await open_run()
            run_map = await run.read_map()
        if shards is not None and shards != run_map.shards:
            if run_map.alive:
                logger.warning(
                    "run %s has %d shards, -a shards=%d is ignored; to change it: scrapy shards %d --run %s",
                    name,
                    run_map.shards,
                    shards,
                    shards,
                    name,
                )
            else:
                await run.update(shards=shards)
                run_map.shards = shards
        arguments.check_range(run_map.shards)
        return run

    async def _join_run(self, feed: Feed) -> None:
        run, metrics, dispatcher = self._run, self._telemetry.metrics, feed.dispatcher
        # A run that had ended is resumed: before the feed reads its state, or it would stop at once, and
        # after the number is claimed, or a refused shard would resume it for nothing.
        await feed.number.claim()
        metrics.active_downloads = lambda: len(dispatcher.leases) - dispatcher.pacer.buffered
        metrics.buffered_urls = lambda: dispatcher.pacer.buffered
        metrics.heartbeat_age_seconds = lambda: feed.heartbeat_age_s
        self._telemetry.start(self._config, run, "shard", feed.number.number)
        self._telemetry.heartbeat.descriptors.add_source(lambda: connections_of(self._crawler))
        await self._resumption.begin(run)
        # Not by a child of `scrapy run`, which has done so: a run stopped meanwhile must stay stopped.
        if not self._config.supervisor:
            alive = (await run.read_map()).alive.values()
            # Of several that start together none may count the time without shards.
            await run.begin(is_first=all(holder.starting for holder in alive))
        await feed.open()
        self._crawler.signals.connect(self._on_idle, signals.spider_idle)

    def _start_tasks(self, feed: Feed, start_urls_key: str) -> None:
        config, run, engine = self._config, self._run, self._engine
        idle_s = config.scheduler_idle_before_close
        self._leader = leader = Leader(run, self._process, min(self._ttl_ms, 5000), idle_s)

        async def admit_start(request: Request, mark: int) -> None:
            await feed.admit_now([replace(self._candidate_of(request), mark=mark)])

        def is_started() -> bool:
            return seams.start_is_exhausted(engine) and not self._kept.is_busy

        wake = partial(seams.wake, engine)
        leading = lead(leader, feed, lambda: self.has_work, is_started=is_started, wake=wake)
        if not isinstance(self._spider, PageSpider):
            leading = lead_without_seeds(leading, run)
        self._start(leading, "leader")
        self._start(read_start_urls(run, start_urls_key, feed.number.number, admit_start), "start urls")
        if config.metrics_port:
            self._start(publish_run_metrics(leader, run, self._telemetry.metrics, config), "run metrics")
        # As with LogStats, 0 switches it off.
        if self._crawler.settings.getfloat("LOGSTATS_INTERVAL"):
            self._progress = ProgressLog(feed, self._stats)
            self._start(self._progress.log_every(config.figures_seconds), "progress log")
        self._start(watch_egress(feed, client_of(self._crawler)), "watch egress")
        if config.supervisor:
            self._start(watch_supervisor(config), "watch supervisor")

    def _start(self, task: Coroutine[None, None, None], name: str) -> None:
        async def run() -> None:
            try:
                await task
            except Exception as exc:  # without this task the run would not end, or lose start URLs
                error = exc
                if not isinstance(error, CrawlError):
                    logger.error("background task %r failed", name, exc_info=error)
                    error = CrawlError(f"background task {name!r} failed: {error!r}")
                self._on_stop("error", error)

        self._tasks.append(asyncio.create_task(run(), name=name))

    # -- what the scheduler calls --

    def next_request(self) -> Request | None:
        return self._fetches.next_request() if self._fetches is not None else None

    def admit(self, request: Request) -> bool:
        """Admit a request in the feed's next turn; one that cannot be stored is kept in memory.

        One for a `data:` URL is queued there. Returns False for a duplicate among these, and when the shard
        could not start. Raises BadUrl, or RequestNotSerialisable for a request to be kept that would come
        back to another shard.
        """
        if self.dispatcher is None:
            return False
        if is_unpaced(request):
            return self._kept.queue(request)
        candidate: Candidate | None
        try:
            candidate = self._candidate_of(request)
        except RequestNotSerialisable as exc:
            self._count("scheduler/unserializable")
            candidate = self._kept.keep(request, exc)
        if candidate is not None:
            self.dispatcher.add([candidate])
        return candidate is not None

    @property
    def has_work(self) -> bool:
        if self.dispatcher is None or self._is_over:
            return False
        return self.dispatcher.has_work or self._kept.is_busy

    def _candidate_of(self, request: Request) -> Candidate:
        return candidate_of(request, self._spider, self._marks)

    # -- while it runs --

    def _wake(self) -> None:
        if self._fetches is not None:
            self._fetches.wake()

    def _figures(self) -> Mapping[str, object]:
        dispatcher = self.dispatcher
        assert dispatcher is not None
        buffered = dispatcher.pacer.buffered
        return self._telemetry.heartbeat.beat(
            self._telemetry.metrics.fetches["page"],
            bytes=self._telemetry.metrics.fetched_bytes,
            in_flight=len(dispatcher.leases) - buffered,
            buffered=buffered,
        )

    def _on_idle(self) -> None:
        if not self._is_over:
            raise DontCloseSpider

    def _on_stop(self, reason: str, error: CrawlError | None) -> None:
        self._is_over = True
        if error is not None:
            self._fail(error)
            reasons = {Fenced: "fenced", RedisUnreachable: "redis_unreachable"}
            reason = next((name for kind, name in reasons.items() if isinstance(error, kind)), "error")
        elif reason == RunState.FINISHED and seams.start_failed(self._engine):
            # As Scrapy calls it; its error is in the log.
            reason = "start_error"
        self._closing.begin(reason)

    def _fail(self, error: CrawlError) -> None:
        # One line, as all log lines.
        words = " ".join(str(error).splitlines())
        logger.error("shard %s stops: %s", vars(self._spider).get("shard", 0), words)
        seams.exit_with(error.exit_code)

    # -- closing --

    def _on_closing(self) -> None:
        self._tasks.append(asyncio.create_task(self._cut_drain(), name="drain"))

    async def _cut_drain(self) -> None:
        """Give the engine's downloads in flight their time to drain, then stop without them."""
        await asyncio.sleep(self._config.drain_seconds)
        self._warn_of_cut()
        await self.close("drained")
        seams.stop_reactor()

    def _warn_of_cut(self) -> None:
        seconds = self._config.drain_seconds
        logger.warning("downloads in flight were aborted after CRAWL_DRAIN_SECONDS=%g", seconds)

    async def close(self, reason: str) -> None:
        self._resumption.keep_feeds()
        own = asyncio.current_task()
        others = [task for task in self._tasks if task is not own]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._fetches is not None and not await self._fetches.drain(self._config.drain_seconds):
            self._warn_of_cut()
        if self._feed is not None:
            try:
                await self._feed.close()
                if self._leader is not None:
                    await self._leader.step_down()
                if reason == RunState.FINISHED:
                    if await self._resumption.was_for_nothing(self._run):
                        self._fail(RunFinished(self._run.name, self._spider.name))
                    elif self._is_whole:
                        await report_end(self._run)
                    if not self._config.scheduler_persist:
                        await delete_if_last(self._run, context_of(self._crawler).drains)
            except CrawlError as exc:
                logger.error("cannot return leases: %s; they are reclaimed when they expire", exc)
        if self._progress is not None:
            self._progress.log()
        self._telemetry.close()
        if self._client is not None:
            await self._client.close()
        self._restore_collector()
