"""``scrapy run``: a whole crawl on this machine, or this machine's part of one."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from crawlproj import profiles
from crawlproj.config.rules import RULES
from crawlproj.console import spoken
from crawlproj.errors import EXIT_NOTHING_FETCHED, BadArgument, CannotStart, NoSeeds, RunFinished
from crawlproj.frontier.scope import list_sites
from crawlproj.model.run import RunPaths, RunState
from crawlproj.model.urls import suffixes
from crawlproj.redisio.client import RedisClient
from crawlproj.ruled import RuledCommand
from crawlproj.runs import Run, status_of
from crawlproj.runs.membership import Membership
from crawlproj.runs.rules import RulesWatch, Terms
from crawlproj.supervisor.again import release_failed
from crawlproj.supervisor.change import change_run, set_limits, stop_at_limit
from crawlproj.supervisor.claim import fresh_run_name, membership_of
from crawlproj.supervisor.forkpool import ForkPool
from crawlproj.supervisor.limits import raise_file_limit
from crawlproj.supervisor.plan import Range, amount_from, arguments_from, limits_from, parsers_from
from crawlproj.supervisor.progress import scope_phrase, start_phrase
from crawlproj.supervisor.restart import restart

if TYPE_CHECKING:
    from crawlproj.frontier.seeds import SeedSource
    from crawlproj.supervisor.crawl import CrawlResult

#: Limits that are settings.
_LIMIT_SETTINGS = {"max-depth": "DEPTH_LIMIT", "max-domain-pages": "CRAWL_DOMAIN_PAGES"}
#: Imported once, before the shards are forked. Nothing here may install a reactor.
_SHARD_MODULES = (
    "crawlproj.scheduler",
    "crawlproj.spiders.web",
    "crawlproj.download.handler",
    "crawlproj.middlewares",
    "crawlproj.pipelines",
    "crawlproj.shard.single",
)


@dataclass(slots=True)
class RunSpec:
    """The crawl the command line and the profile describe. A limit of None keeps the run's own."""

    run: str
    sources: Sequence[SeedSource]
    shards: int
    parsers: Range
    limits: Mapping[str, int | float | None]
    settings: dict[str, str] = field(default_factory=dict)
    #: Whether it is started over, unless others work on it already: `joins`.
    flushes: bool = False
    joins: bool = False

    @property
    def own_settings(self) -> dict[str, str]:
        """The settings of processes; those of the run they get from the run, also when it changes them."""
        return {name: value for name, value in self.settings.items() if name not in RULES}


class Command(RuledCommand):
    group = "crawl"
    needs_scrapy = True
    arguments = "[options] [PROFILE | FILE|URL|- ...]"
    summary = "Run a crawl on this machine: shards, parsers, progress"
    takes_arguments = True
    examples = """\
  scrapy run seeds.txt --shards 2 --parsers 1..4     one URL or domain per line
  scrapy run https://example.org/ --run example      stores pages in data/runs/example/pages
  cat urls | scrapy run - --max-pages 1000           from standard input, at most 1,000 pages
  scrapy run one-site                                a profile: profiles/NAME.toml, or a shipped one
  scrapy run                                         resume an interrupted run
  scrapy run seeds.txt --restart                     crawl a run again from the start
  scrapy run --join --shards 2                       add two shards to a run that is running
  scrapy run --change -s DOWNLOAD_DELAY=5            slow a run down, also while it runs
  scrapy run --simweb 40                             a simulated web of 40 domains, checked by its own log"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        for name, metavar, text in (
            ("shards", "N", "fetch processes (default 2)"),
            ("parsers", "N|MIN..MAX", "parse processes, scaled by the page queue (default 1..cores)"),
            ("max-pages", "N", "stop after N pages in total; 0: no limit"),
            ("max-seconds", "N", "stop after N seconds of running in total"),
            ("max-bytes", "N", "stop after N bytes fetched in total"),
            ("max-depth", "N", "at most N links away from a seed (DEPTH_LIMIT)"),
            ("max-domain-pages", "N", "at most N URLs per domain (CRAWL_DOMAIN_PAGES)"),
            ("scope", "SCOPE", "which links to follow: sites (default), everything, ... (CRAWL_SCOPE)"),
            ("spider", "NAME", "the spider of a new run (default: web); a run keeps its own"),
            ("simweb", "N", "crawl a simulated web of N domains"),
        ):
            parser.add_argument(f"--{name}", metavar=metavar, help=text)
        an_argument = "an argument of --spider (repeatable); the run keeps it"
        parser.add_argument("-a", action="append", default=[], metavar="NAME=VALUE", help=an_argument)
        for name, text in (
            ("skip-invalid", "skip invalid seeds instead of refusing to start"),
            ("restart", "crawl again from the start; what it had stored is kept under another name"),
            ("join", "add this machine's processes to a run that is running elsewhere (needs no seeds)"),
            ("change", "change the run's limits and rules, and start nothing; works while it runs"),
            ("json", "print the result as one JSON object"),
        ):
            parser.add_argument(f"--{name}", action="store_true", help=text)

        def refuse(message: str) -> NoReturn:
            hint = "see: scrapy run -h"
            # A sentence has its own remedy.
            is_whole = hint in message or message.endswith(".")
            parser.exit(2, spoken(f"scrapy run: {message}{'' if is_whole else f'; {hint}'}\n"))

        # argparse would print the whole usage first.
        parser.error = refuse  # type: ignore[method-assign]

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.project import execute

        if opts.change:
            return asyncio.run(self._change(args, opts))
        spec = self._read_spec(args, opts)
        raise_file_limit(self.config())
        self._forkpool = forkpool = ForkPool()
        # Before anything is opened. In a child it returns once the child is to become a shard or parser.
        turn = forkpool.fork(spec.shards + spec.parsers.least, _prepare_shards)
        if turn is not None:
            execute(turn)
        try:
            return asyncio.run(self._run(opts, spec))
        finally:
            forkpool.close()

    async def _run(self, opts: argparse.Namespace, spec: RunSpec) -> int:
        result = await (self._crawl_simweb(opts, spec) if opts.simweb else self._crawl_seeds(opts, spec))
        if opts.json:
            print(json.dumps(result.status))
        if result.failure is not None:
            raise result.failure
        return result.code

    # -- arguments --

    def _read_spec(self, args: list[str], opts: argparse.Namespace) -> RunSpec:
        profile = self._profile(args, opts)
        opts.simweb = amount_from("simweb", opts.simweb, 1)
        limits = limits_from(opts)
        settings = self._apply_settings(opts, profile)
        shards = amount_from("shards", opts.shards, 1) or (profile.shards if profile else 2)
        parsers = parsers_from(opts.parsers or (profile.parsers if profile else "1.."), os.cpu_count() or 1)
        name = profile.run if profile and not opts.run else self.run_name(opts)
        sources = self.seed_sources(profile.seeds if profile else args)
        if opts.restart and opts.join:
            raise BadArgument("--restart starts a run over and --join adds to one: use only one of them.")
        if opts.spider:
            name = opts.run or self.config().run or opts.spider
        elif not (sources or opts.join or opts.simweb):
            if opts.restart:
                raise NoSeeds(f"To crawl run {name!r} again, give its seeds, too, or its --spider.")
            asyncio.run(self._require_run(name))
        spider, skip = opts.spider or "web", opts.skip_invalid
        asyncio.run(self.check(name, sources, opts, fetches=True, skip_invalid=skip, spider=spider))
        self.warn_of_unused(spider)
        config = self.config()
        if shards > config.partitions:
            raise BadArgument(f"--shards {shards}: at most {config.partitions}, one per partition.")
        return RunSpec(
            run=name,
            sources=sources,
            shards=shards,
            parsers=parsers,
            flushes=config.scheduler_flush_on_start and bool(sources or opts.simweb or opts.spider),
            limits={
                name: getattr(profile, name) if profile and given is None else given
                for name, given in limits.items()
            },
            settings=settings | {"CRAWL_DATA": str(config.data)},
        )

    async def _require_run(self, name: str) -> None:
        """Raise NoSeeds unless there is a run to resume."""
        if self.has_crawl():
            async with self.client() as client:
                if await Run(client, name, 1).state():
                    return
        raise _no_seeds(name)

    def _profile(self, args: list[str], opts: argparse.Namespace) -> profiles.Profile | None:
        """Return the profile *args* name, if any. Raises BadArgument for arguments that conflict."""
        if opts.simweb and (args or opts.join):
            what = repr(args[0]) if args else "--join"
            raise BadArgument(f"--simweb has its own seeds and run; leave out {what}.")
        named = [word for word in args if profiles.find(word)]
        if named and (len(args) > 1 or opts.join):
            raise BadArgument(
                f"{named[0]!r} is a profile with its own seeds; it takes no other seeds and no --join."
            )
        return profiles.load(named[0]) if named else None

    def _apply_settings(self, opts: argparse.Namespace, profile: profiles.Profile | None) -> dict[str, str]:
        """Apply settings and return them for the children. Precedence: -s, options, profile."""
        settings: dict[str, str] = {}
        if opts.simweb:
            from crawlproj.simweb.process import CRAWL_SETTINGS

            settings |= CRAWL_SETTINGS
        settings |= profile.settings if profile else {}
        for option, setting in _LIMIT_SETTINGS.items():
            amount = amount_from(option, getattr(opts, option.replace("-", "_")), 0)
            if amount is not None:
                settings[setting] = str(amount)
        if opts.scope:
            settings["CRAWL_SCOPE"] = opts.scope
        if opts.loglevel:
            settings["LOG_LEVEL"] = opts.loglevel
        if arguments := arguments_from(opts.a, opts.spider):
            settings["CRAWL_ARGUMENTS"] = json.dumps(arguments)
        settings |= dict(pair.split("=", 1) for pair in opts.set)
        if opts.data:
            settings["CRAWL_DATA"] = opts.data
        self.settings.setdict(settings, priority="cmdline")
        return settings

    # -- the crawl --

    async def _crawl_seeds(self, opts: argparse.Namespace, spec: RunSpec) -> CrawlResult:
        config = self.config()
        if opts.join and not self.has_crawl():
            raise BadArgument(
                f"There is no crawl in {str(config.data)!r} to join. On the machine of the crawl, give its "
                "directory with --data; elsewhere set REDIS_URL."
            )
        async with self.client() as client, self._membership(client, opts, spec) as membership:
            return await self._crawl(client, opts, spec, membership)

    async def _crawl_simweb(self, opts: argparse.Namespace, spec: RunSpec) -> CrawlResult:
        from crawlproj.simweb.process import SimwebProcess, web_to_try
        from crawlproj.simweb.spec import WorldSpec

        async with self.client() as client:
            spec.run = opts.run or await fresh_run_name(client, "simweb")
            directory = RunPaths(self.config().data, spec.run).directory
            async with self._membership(client, opts, spec) as membership:
                world = directory / "world.json"
                # An interrupted run is resumed on the same web, at the same addresses.
                world_spec = web_to_try(opts.simweb)
                if world.exists():
                    world_spec = WorldSpec.from_json(world.read_text())
                with SimwebProcess(world_spec, directory) as simweb:
                    world.write_text(json.dumps(json.loads(world_spec.to_json()) | {"port": simweb.port}))
                    spec.sources = self.seed_sources(simweb.seeds())
                    result = await self._crawl(client, opts, spec, membership)
                    referee = simweb.referee()
        if result.code == 0 and result.status["state"] == RunState.FINISHED:
            delay_ms = float(spec.settings["DOWNLOAD_DELAY"]) * 1000
            verdict = referee.verdict(min_gap_ms=delay_ms)
            result.status["referee"] = verdict.report()
            agrees = (
                f"The simulated web's own log agrees: all {len(referee.expected):,} pages that had to be "
                "fetched were, none of them twice, and robots.txt and delays were kept."
            )
            differs = f"The simulated web's own log disagrees: {verdict.report()}"
            self.print_notice(opts, agrees if verdict.ok else differs)
            result = replace(result, code=0 if verdict.ok else 1)
        return result

    @asynccontextmanager
    async def _membership(
        self, client: RedisClient, opts: argparse.Namespace, spec: RunSpec
    ) -> AsyncIterator[Membership]:
        """As `membership_of`; to start the run over, delete it."""
        config, say = self.config(), self.print_error
        place = membership_of(client, spec.run, config, spec.shards, must_join=opts.join, notify=say)
        async with place as (membership, spec.joins):
            flushes = spec.flushes and not spec.joins
            if (opts.restart or flushes) and (earlier := await restart(client, spec.run, config)):
                see = f"to see it: scrapy {'items' if opts.spider else 'pages'} --run {earlier.run}"
                kept = f"what it had stored is kept in {earlier.directory}, {see}"
                self.print_notice(opts, f"run {spec.run} begins again; {kept}")
            elif not spec.joins:
                await release_failed(client, spec.run, partial(self.print_notice, opts))
            yield membership

    async def _crawl(
        self, client: RedisClient, opts: argparse.Namespace, spec: RunSpec, membership: Membership
    ) -> CrawlResult:
        from crawlproj.storage.aside import set_aside_others
        from crawlproj.supervisor.children import LogFiles
        from crawlproj.supervisor.crawl import Crawl, CrawlResult
        from crawlproj.supervisor.summary import complete, ended_fruitless, pages_elsewhere, summary_of

        run = await self.open_run(client, spec.run, spec.shards)
        run.watch()
        say = partial(self.print_notice, opts)
        terms = await self._agree(run, opts, spec, say)
        config, spider = terms.config, terms.rules.spider
        count = await self.admit_seeds(run, spec.sources)
        if count.new:
            await run.reopen()
        counters = await run.read_counters()
        if not counters.admitted and spider == "web":
            raise _no_seeds(run.name)
        was_finished = await run.state() == RunState.FINISHED and not counters.is_left
        if was_finished and spider == "web":
            raise RunFinished(run.name, spider)
        await set_limits(run, spec.limits)
        paths = RunPaths(config.data, run.name)
        if kept := set_aside_others(paths, run.created_ms):
            say(f"pages of an earlier run {run.name}, deleted meanwhile, are now in {kept.pages}")
        log_files = LogFiles(paths.logs, self.settings.get("LOG_FILE"))
        crawl = Crawl(
            membership,
            run,
            config,
            spec.parsers,
            spec.own_settings,
            log_files,
            log_level=self.settings.get("LOG_LEVEL"),
            forkpool=self._forkpool,
            restore=partial(self._restore, run, RulesWatch(run, config, terms.rules), spec.sources),
            spider_words=(spider, *(f"-a{name}={value}" for name, value in config.arguments.items())),
        )
        begins = start_phrase(count.new, counters.waiting, spider, was_finished=was_finished)
        counts = f"shards: {spec.shards}, parsers: {spec.parsers}"
        say(f"run {run.name}: {begins}; {counts}; logs in {log_files.own.parent}")
        if spider == "web":
            say(f"run {run.name} {scope_phrase(config, await list_sites(client, run.name, run.partitions))}")
        if not spec.joins and await stop_at_limit(run):
            say(f"run {run.name} has reached its limit already; nothing is fetched")
            result = CrawlResult(0, await status_of(run) | {"seconds": 0.0})
        else:
            result = await crawl.run()
        status = complete(result.status, paths, spider, counters.fetched)
        if was_finished and result.code == 0 and status["admitted"] == counters.admitted:
            raise RunFinished(run.name, spider)
        if result.failure is None:
            status["pages_elsewhere"] = await pages_elsewhere(run, paths)
            self.print_notice(opts, summary_of(status, joined=membership.had_company))
            if result.code == 0 and ended_fruitless(status):
                result = replace(result, code=EXIT_NOTHING_FETCHED)
        return result

    async def _agree(
        self, run: Run, opts: argparse.Namespace, spec: RunSpec, say: Callable[[str], None]
    ) -> Terms:
        # Who repeats a command does not mean to change a run that others work on meanwhile.
        yields = spec.joins and not opts.join
        if yields:
            say(f"run {run.name} is running already; this machine joins it")
            spec.limits = {}
        spider, may_change = opts.spider or "", not spec.joins
        terms = await self.obey(run, opts, spider=spider, may_change=may_change, yields=yields, say=say)
        assert terms is not None
        return terms

    async def _restore(self, run: Run, watch: RulesWatch, sources: Sequence[SeedSource]) -> None:
        """Restore what Redis may have lost."""
        await watch.restore()
        await self.admit_seeds(run, sources)

    async def _change(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.checks import rule_problems

        if args or opts.join or opts.simweb or opts.shards or opts.parsers or opts.spider:
            raise BadArgument("--change starts nothing: it takes --run, limits, --scope and -s only.")
        settings = self._apply_settings(opts, None)
        self.requires_crawl = True
        if problems := list(rule_problems(self.config())):
            raise CannotStart(problems)
        async with self.found_run(opts) as run:
            changes = await change_run(run, self.config(), settings.keys(), limits_from(opts))
        self.print_notice(opts, f"run {run.name}: {'; '.join(changes) or 'nothing to change'}")
        return 0


def _no_seeds(run: str) -> NoSeeds:
    return NoSeeds(f"Run {run!r} has no seeds. Add some: scrapy run FILE-OR-URL ...")


def _prepare_shards() -> None:
    """Import and read once, before forking, what every shard needs."""
    suffixes()
    for name in _SHARD_MODULES:
        import_module(name)
