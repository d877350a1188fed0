"""``scrapy run``: a whole crawl on this machine, or this machine's part of one."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from crawlproj.config import Config
    from crawlproj.profiles import Profile
    from crawlproj.redisio.client import Door
    from crawlproj.runs import Limits, Run
    from crawlproj.supervisor.crawl import Ending
    from crawlproj.supervisor.plan import Range

#: Limits of the run, --max-...
_LIMITS = ("pages", "seconds", "bytes")
#: Limits that are settings of the shards and parsers.
_LIMIT_SETTINGS = {"max-depth": "DEPTH_LIMIT", "max-domain-pages": "CRAWL_DOMAIN_PAGES"}
#: Gentle and quick at once, as the simulated web is our own.
_SIMWEB_SETTINGS = {
    "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
    "DOWNLOAD_DELAY": "0.2",
    "CRAWL_BACKOFF_SECONDS": "1",
    "CRAWL_SEGMENT_SECONDS": "5",
}
#: What a shard needs, imported once for all. Never a reactor, of which each process makes its own.
_SHARD_MODULES = (
    "crawlproj.scheduler",
    "crawlproj.spiders.web",
    "crawlproj.download.handler",
    "crawlproj.middlewares",
    "crawlproj.pipelines",
    "crawlproj.single",
    "crawlproj.extensions.collector",
    "crawlproj.extensions.summary",
)


@dataclass(slots=True)
class Asked:
    """What the command line and the profile ask for. Limits that are None stay as the run has them."""

    run: str
    sources: Sequence[str]
    shards: int
    parsers: Range
    limits: Mapping[str, int | float | None]
    joins: bool = False
    settings: dict[str, str] = field(default_factory=dict)


class Command(RunCommand):
    takes_arguments = True
    examples = """\
  scrapy run seeds.txt --shards 2 --parsers 1..4     every line a URL or a domain
  scrapy run https://example.org/ --run example      its pages go to data/runs/example/pages
  cat urls | scrapy run - --max-pages 1000           from standard input, and no more than 1,000 pages
  scrapy run one-site                                the profile profiles/one-site.toml
  scrapy run                                         goes on with what was interrupted
  scrapy run --join --shards 2                       two more shards for a run that is at work
  scrapy run --simweb 40                             a simulated web of 40 domains, judged by its own log"""

    def syntax(self) -> str:
        return "[options] [PROFILE | FILE|URL|- ...]"

    def short_desc(self) -> str:
        return "Run a whole crawl on this machine: shards, parsers, progress"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        for name, metavar, text in (
            ("shards", "N", "fetch processes (default 2)"),
            ("parsers", "N|MIN..MAX", "parse processes; as many as the page queue wants (default 1..cores)"),
            ("max-pages", "N", "stop after N pages, in all; 0: no limit"),
            ("max-seconds", "N", "stop after running for N seconds, in all"),
            ("max-bytes", "N", "stop after N bytes were fetched, in all"),
            ("max-depth", "N", "no further than N links from a seed (DEPTH_LIMIT)"),
            ("max-domain-pages", "N", "no more than N URLs of a domain (CRAWL_DOMAIN_PAGES)"),
            ("simweb", "N", "crawl a simulated web of N domains"),
        ):
            parser.add_argument(f"--{name}", metavar=metavar, help=text)
        parser.add_argument("--join", action="store_true", help="add processes to a run that is at work")
        parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")

        def refuse(message: str) -> NoReturn:
            parser.exit(2, f"scrapy run: {message}; see: scrapy run -h\n")

        # argparse itself prints the whole usage before.
        parser.error = refuse  # type: ignore[method-assign]

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        import asyncio
        import sys

        from scrapy.cmdline import execute

        from crawlproj.supervisor.limits import raise_file_limit
        from crawlproj.supervisor.nursery import Nursery

        asked = self._asked(args, opts)
        raise_file_limit(self.config())
        self._nursery = nursery = Nursery()
        # Before anything is open. In a child it returns when that is to become a shard or a parser.
        turn = nursery.fork(asked.shards + asked.parsers.least, _prepare_shards)
        if turn is not None:
            sys.argv = ["scrapy", *turn]
            execute()
        try:
            return asyncio.run(self._run(opts, asked))
        finally:
            nursery.close()

    async def _run(self, opts: argparse.Namespace, asked: Asked) -> int:
        import json

        ending = await (self._simulated(opts, asked) if opts.simweb else self._real(opts, asked))
        if opts.json:
            print(json.dumps(ending.status))
        if ending.failure is not None:
            raise ending.failure
        return ending.code

    # -- what is asked for --

    def _asked(self, args: list[str], opts: argparse.Namespace) -> Asked:
        import os

        from crawlproj.errors import BadArgument
        from crawlproj.supervisor.plan import amount_from, parsers_from

        profile = self._profile(args, opts)
        opts.simweb = amount_from("simweb", opts.simweb, 1)
        limits = {name: amount_from(f"max-{name}", getattr(opts, f"max_{name}"), 0) for name in _LIMITS}
        settings = self._apply_settings(opts, profile)
        config = self.config()
        shards = amount_from("shards", opts.shards, 1) or (profile.shards if profile else 2)
        if shards > config.partitions:
            raise BadArgument(f"--shards {shards}: at most {config.partitions}, one for each partition.")
        return Asked(
            run=profile.run if profile and not opts.run else self.run_name(opts),
            sources=profile.seeds if profile else args,
            shards=shards,
            parsers=parsers_from(
                opts.parsers or (profile.parsers if profile else "1.."), os.cpu_count() or 1
            ),
            limits={
                name: getattr(profile, name) if profile and given is None else given
                for name, given in limits.items()
            },
            joins=opts.join,
            settings=settings | {"CRAWL_DATA": str(config.data)},
        )

    def _profile(self, args: list[str], opts: argparse.Namespace) -> Profile | None:
        """Return the profile that is named, if one is. Raises BadArgument for what does not go together."""
        from crawlproj import profiles
        from crawlproj.errors import BadArgument

        if opts.simweb and (args or opts.join):
            what = repr(args[0]) if args else "--join"
            raise BadArgument(f"--simweb brings its own seeds and run; leave out {what}.")
        named = [word for word in args if profiles.find(word)]
        if named and (len(args) > 1 or opts.join):
            raise BadArgument(
                f"{named[0]!r} is a profile, which brings its own seeds; name it alone, without --join."
            )
        return profiles.load(named[0]) if named else None

    def _apply_settings(self, opts: argparse.Namespace, profile: Profile | None) -> dict[str, str]:
        """Return the settings for the children, which are ours, too: -s goes over options over profile."""
        from crawlproj.supervisor.crawl import changed_settings
        from crawlproj.supervisor.plan import amount_from

        settings = dict(_SIMWEB_SETTINGS) if opts.simweb else {}
        settings |= profile.settings if profile else {}
        for option, setting in _LIMIT_SETTINGS.items():
            amount = amount_from(option, getattr(opts, option.replace("-", "_")), 0)
            if amount is not None:
                settings[setting] = str(amount)
        if opts.loglevel:
            settings["LOG_LEVEL"] = opts.loglevel
        settings |= changed_settings(opts.set)
        if opts.data:
            settings["CRAWL_DATA"] = opts.data
        assert self.settings is not None
        for name, value in settings.items():
            self.settings.set(name, value, priority="cmdline")
        return settings

    # -- the crawl --

    async def _real(self, opts: argparse.Namespace, asked: Asked) -> Ending:
        from crawlproj.errors import BadArgument

        config = self.config()
        if asked.joins and config.redis_url is None and not (config.data / "redis").is_dir():
            raise BadArgument(
                f"There is no crawl in {str(config.data)!r} to join. Name its directory with --data on the "
                "same machine, or its Redis with REDIS_URL."
            )
        async with self.door() as door:
            if asked.joins:
                return await self._crawl(door, opts, asked)
            async with self._alone(door, asked):
                return await self._crawl(door, opts, asked)

    async def _simulated(self, opts: argparse.Namespace, asked: Asked) -> Ending:
        import json
        from dataclasses import replace

        from crawlproj.simweb.process import SimwebProcess
        from crawlproj.simweb.spec import WorldSpec
        from crawlproj.supervisor.crawl import fresh_run_name, run_directory

        async with self.door() as door:
            asked.run = opts.run or await fresh_run_name(door, "simweb")
            directory = run_directory(self.config().data, asked.run)
            async with self._alone(door, asked):
                world = directory / "world.json"
                # An interrupted run goes on in the same web, at the same addresses.
                spec = WorldSpec.wild(domains=opts.simweb, pages_per_domain=25)
                if world.exists():
                    spec = WorldSpec.from_json(world.read_text())
                with SimwebProcess(spec, directory) as simweb:
                    world.write_text(json.dumps(json.loads(spec.to_json()) | {"port": simweb.port}))
                    asked.sources = simweb.seeds()
                    ending = await self._crawl(door, opts, asked)
                    referee = simweb.referee()
        if ending.code == 0 and ending.status["state"] == "finished":
            delay_ms = float(asked.settings["DOWNLOAD_DELAY"]) * 1000
            verdict = referee.verdict(min_gap_ms=lambda domain: referee.required_gap_ms(domain, delay_ms))
            ending.status["referee"] = verdict.report()
            self._say(opts, f"the simulated web's own log says: {verdict.report()}")
            ending = replace(ending, code=0 if verdict.ok else 1)
        return ending

    @asynccontextmanager
    async def _alone(self, door: Door, asked: Asked) -> AsyncIterator[None]:
        """Be the run's only supervisor here, after the processes of one that was killed have left."""
        import sys

        from crawlproj.runs import Run
        from crawlproj.supervisor.crawl import run_directory
        from crawlproj.supervisor.entry import forget_joined, only_supervisor, wait_for_leftovers

        config = self.config()
        with only_supervisor(run_directory(config.data, asked.run), asked.run):
            if await Run(door, asked.run, 1).state():
                run = await Run.find(door, asked.run)
                within_s = config.shard_lease_seconds + config.drain_seconds
                await wait_for_leftovers(run, within_s, lambda text: print(text, file=sys.stderr, flush=True))
                await forget_joined(run)
            yield

    async def _crawl(self, door: Door, opts: argparse.Namespace, asked: Asked) -> Ending:
        from crawlproj.errors import NoSeeds
        from crawlproj.model.records import outcome_of
        from crawlproj.runs import Run
        from crawlproj.supervisor.children import LogFiles
        from crawlproj.supervisor.crawl import Crawl, run_directory
        from crawlproj.supervisor.entry import join

        config = self.config()
        assert self.settings is not None
        if asked.joins:
            run = await Run.find(door, asked.run)
        else:
            run = await Run.open(door, asked.run, partitions=config.partitions, shards=asked.shards)
        new = await self._admit_seeds(run, config, asked.sources)
        figures = await run.figures()
        if not figures.admitted:
            raise NoSeeds(f"Run {run.name!r} has no seeds yet: scrapy run FILE-OR-URL ...")
        limits = await _set_limits(run, asked.limits)
        await (join(run, asked.shards) if asked.joins else run.set_shards(asked.shards))
        directory = run_directory(config.data, run.name)
        log_files = LogFiles(directory / "logs", self.settings.get("LOG_FILE"))
        crawl = Crawl(
            run,
            config,
            asked.parsers,
            asked.settings,
            log_files,
            log_level=self.settings.get("LOG_LEVEL"),
            limits=limits,
            joins=asked.shards if asked.joins else None,
            nursery=self._nursery,
        )
        self._say(
            opts,
            f"run {run.name}: {_begins(new, figures.waiting)}; shards: {asked.shards}, "
            f"parsers: {asked.parsers}; logs in {log_files.own.parent}",
        )
        ending = await crawl.go()
        status = ending.status
        status["data"], status["pages"] = str(directory), str(directory / "pages")
        status["pages_fetched"] = status["fetched"]
        status["failed_by_reason"] = {
            reason: count for reason, count in status["by_reason"].items() if outcome_of(reason) == "failed"
        }
        fetched = max(0, status["fetched"] - figures.fetched)
        status["pages_per_second"] = round(fetched / max(status["seconds"], 0.1), 1)
        if ending.failure is None:
            self._say(opts, _last_words(status))
        return ending

    async def _admit_seeds(self, run: Run, config: Config, sources: Sequence[str]) -> int:
        """Admit the seeds; returns how many are new. Raises NoSeeds when there are only bad ones."""
        from crawlproj.errors import NoSeeds
        from crawlproj.frontier.exclusions import load_rules
        from crawlproj.frontier.frontier import Frontier
        from crawlproj.frontier.seeds import admit_seeds

        rules, _ = load_rules(config)
        frontier = Frontier(run.door, run.name, run.partitions, domain_pages=config.domain_pages)
        count = await admit_seeds(frontier, sources, rules, self.complain)
        if sources and not count.given:
            raise NoSeeds("None of the seeds is valid; nothing was started.")
        if count.new:
            await run.reopen()
        return count.new

    def _say(self, opts: argparse.Namespace, text: str) -> None:
        import sys

        print(text, file=sys.stderr if opts.json else sys.stdout, flush=True)


def _prepare_shards() -> None:
    """Do once what every shard would do at its start."""
    from contextlib import suppress
    from importlib import import_module

    from crawlproj import fastpath

    for name in _SHARD_MODULES:
        import_module(name)
    # It reads a dozen functions of Scrapy, and is remembered. Whether that will do is for a shard to say.
    with suppress(fastpath.CannotTakeOver):
        fastpath.digest_of_steps()


async def _set_limits(run: Run, given: Mapping[str, int | float | None]) -> Limits:
    """Change the limits that are given; the others stay as they are. Returns all."""
    from dataclasses import replace
    from typing import cast

    changes = {name: amount for name, amount in given.items() if amount is not None}
    before = (await run.read_map()).limits
    limits = replace(before, **cast(dict[str, Any], changes))
    if limits != before:
        await run.set_limits(limits)
    return limits


def _begins(new: int, waiting: int) -> str:
    return f"new seeds: {new:,}" if new else f"goes on with {waiting:,} URLs waiting"


def _last_words(status: dict[str, Any]) -> str:
    """Say how the run stands, where its pages are, and how it goes on."""
    state, reason = status["state"], status["reason"]
    if state == "finished":
        how = f"finished in {status['seconds']} s"
    else:
        left = status["pages_queued"] + status["pages_being_parsed"]
        how = f"{state}{f' ({reason})' if reason else ''} after {status['seconds']} s"
        how += f" with {status['waiting']:,} URLs waiting and {left:,} pages not stored yet"
    how += f": {status['fetched']:,} URLs fetched, {status['skipped']:,} not allowed, "
    lines = [
        f"{how}{status['failed']:,} failed.{_aside(status)}",
        f"{status['pages_stored']:,} pages are in {status['pages']}",
    ]
    if cut := status["pages_cut"]:
        lines.append(f"Pages cut: {cut:,}; part of the body is missing, past CRAWL_MAX_BODY or never sent.")
    if reason.startswith("max_"):
        option = reason.replace("_", "-")
        lines.append(f"To go on: the same command with a higher --{option}; 0 means no limit.")
    elif state == "paused":
        lines.append(f"To go on: scrapy resume --run {status['run']}, and the same command.")
    elif state != "finished":
        lines.append("The same command goes on from here.")
    return "\n".join(lines)


def _aside(status: dict[str, Any]) -> str:
    """Say what was set aside; nothing if nothing was."""
    parts = []
    if status["parked_domains"]:
        parts.append(f"domains parked: {status['parked_domains']:,} with {status['parked']:,} URLs")
    if status["trapped_kept"]:
        parts.append(f"URLs taken for traps: {status['trapped_kept']:,}")
    return f"\n{'; '.join(parts)}; see: scrapy parked --run {status['run']}" if parts else ""
