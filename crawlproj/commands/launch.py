"""``scrapy launch``: run a crawl as jobs on scrapyd servers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from crawlproj.errors import BadArgument, NoSeeds, ShardTaken
from crawlproj.frontier.scope import list_sites
from crawlproj.ruled import RuledCommand
from crawlproj.runs import Run
from crawlproj.supervisor.change import set_limits
from crawlproj.supervisor.claim import live_shards
from crawlproj.supervisor.launch import (
    cancel_jobs,
    check_servers,
    has_credentials,
    job_settings,
    jobs_of,
    pending_after_start,
    plan_jobs,
    schedule_jobs,
)
from crawlproj.supervisor.plan import LIMITS, limits_from
from crawlproj.supervisor.progress import scope_phrase, start_phrase
from crawlproj.supervisor.restart import restart
from crawlproj.supervisor.scrapyd import ScrapydError, ScrapydServer

if TYPE_CHECKING:
    from crawlproj.frontier.seeds import SeedSource


class Command(RuledCommand):
    group = "crawl"
    arguments = "[options] [FILE|URL ...]"
    summary = "Spread the shards and parsers of a run over scrapyd servers"
    takes_arguments = True
    examples = """\
  scrapy launch --scrapyd http://localhost:6800 --shards 2 seeds.txt
  scrapy launch --scrapyd http://a:6800 --scrapyd http://b:6800 --shards 8 --parsers 4 --run news seeds.txt
  scrapy launch --scrapyd http://a:6800 --scrapyd http://b:6800 --run news --status
  scrapy launch --scrapyd http://a:6800 --scrapyd http://b:6800 --run news --cancel"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--scrapyd",
            action="append",
            default=[],
            metavar="URL",
            help="a scrapyd server (repeatable; default: CRAWL_JOBS_ON), with credentials if needed",
        )
        parser.add_argument("--shards", type=int, default=2, metavar="N", help="fetch processes (default 2)")
        parser.add_argument("--parsers", type=int, default=1, metavar="N", help="parse processes (default 1)")
        for name in LIMITS:
            parser.add_argument(
                f"--max-{name}", metavar="N", help=f"stop after N {name} in total; 0: no limit"
            )
        parser.add_argument(
            "--version", default="", metavar="V", help="egg version to run (default: the newest)"
        )
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--status", action="store_true", help="list the jobs of the run")
        what.add_argument(
            "--cancel",
            action="store_true",
            help="cancel the jobs of the run, letting downloads in flight finish",
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> int:
        servers = [ScrapydServer(address) for address in opts.scrapyd or self.config().jobs_on]
        names = [server.name for server in servers]
        if not names:
            raise BadArgument("Give at least one server, for example --scrapyd http://localhost:6800.")
        if len(set(names)) < len(names):
            raise BadArgument("The same server was given twice with --scrapyd.")
        if (opts.status or opts.cancel) and args:
            raise BadArgument(f"--status and --cancel take no seeds; leave out {args[0]!r}.")
        if opts.status:
            return await self._status(servers, opts)
        if opts.cancel:
            return await self._cancel(servers, opts)
        return await self._launch(servers, args, opts)

    async def _launch(self, servers: list[ScrapydServer], args: list[str], opts: argparse.Namespace) -> int:
        config = self.config()
        name = self.run_name(opts)
        for option, least in (("shards", 1), ("parsers", 0)):
            if getattr(opts, option) < least:
                raise BadArgument(f"--{option} {getattr(opts, option)}: must be at least {least}.")
        limits = limits_from(opts)
        settings = job_settings(config, dict(pair.split("=", 1) for pair in opts.set), servers)
        # That is done here: no job may delete what is admitted here.
        settings["SCHEDULER_FLUSH_ON_START"] = "0"
        sources = self.seed_sources(args)
        await self.check(name, sources, opts, fetches=False)
        jobs = plan_jobs(name, opts.shards, opts.parsers, servers)
        await check_servers(servers, {job.spider for job in jobs}, opts.version)
        await self._refuse_if_scheduled(servers, name)
        start = await self._prepare(name, sources, limits, opts)
        print(f"run {name}: {start}; shards: {opts.shards}, parsers: {opts.parsers}")
        if config.redis_url and has_credentials(config.redis_url):
            print("REDIS_URL has credentials and is not passed on: set it in each scrapyd's environment.")

        unscheduled = await schedule_jobs(jobs, settings, opts.version)
        scheduled = [job for job in jobs if job.id not in unscheduled]
        for server in servers:
            print(server.name)
            for job in scheduled:
                if job.server is server:
                    print(f"  {job.title:<10} {job.id}")
        if unscheduled:
            print("not scheduled:")
            for job in jobs:
                if job.id in unscheduled:
                    print(f"  {job.title:<10} {unscheduled[job.id]}")
            if scheduled:
                print(
                    "The run continues with the scheduled jobs, which take over the work of the missing ones."
                )
        try:
            for name, titles in (await pending_after_start(scheduled)).items():
                print(
                    f"{name} has no free slot (max_proc) for {', '.join(titles)}: "
                    "pending until other jobs finish."
                )
        except ScrapydError as exc:
            print(f"Could not check whether all jobs started. {exc}")
            return ScrapydError.exit_code
        return ScrapydError.exit_code if unscheduled else 0

    async def _prepare(
        self,
        name: str,
        sources: list[SeedSource],
        limits: Mapping[str, int | None],
        opts: argparse.Namespace,
    ) -> str:
        """Open the run, creating it if needed, and admit the seeds; returns one phrase for the user."""
        no_seeds = NoSeeds(f"Run {name!r} has no seeds. Add some: scrapy launch ... FILE-OR-URL")
        async with self.client() as client:
            if not sources and not await Run(client, name, 1).state():
                raise no_seeds
            if sources and self.config().scheduler_flush_on_start:
                await restart(client, name, self.config())
            run = await self.open_run(client, name, opts.shards)
            terms = await self.obey(run, opts, spider="web", may_change=True)
            assert terms is not None
            for number, holder in (await live_shards(run)).items():
                raise ShardTaken(
                    f"Run {name!r} is already running: shard {number} is process {holder.process.pid} on "
                    f"{holder.process.host}. Wait until it ends, stop it, or choose another --run."
                )
            count = await self.admit_seeds(run, sources)
            counters = await run.read_counters()
            if not counters.admitted:
                raise no_seeds
            await run.set_shards(opts.shards)
            await set_limits(run, limits)
            # Otherwise a parser that starts before the first shard finds the run finished and exits.
            await run.reopen()
            sites = await list_sites(client, name, run.partitions)
        print(f"run {name} {scope_phrase(terms.config, sites)}")
        return start_phrase(count.new, counters.waiting)

    async def _refuse_if_scheduled(self, servers: list[ScrapydServer], name: str) -> None:
        for server, jobs in (await jobs_of(name, servers)).items():
            if isinstance(jobs, ScrapydError):
                raise jobs
            for job in jobs:
                if job.state != "finished":
                    raise ShardTaken(
                        f"Run {name!r} already has a job on {server}: {job.id} is {job.state}. Wait until it "
                        "ends, cancel it with --cancel, or choose another --run."
                    )

    async def _status(self, servers: list[ScrapydServer], opts: argparse.Namespace) -> int:
        code = 0
        for server, jobs in (await jobs_of(self.run_name(opts), servers)).items():
            print(server)
            if isinstance(jobs, ScrapydError):
                print(f"  {jobs}")
                code = jobs.exit_code
                continue
            for job in jobs:
                print(f"  {job.state:<9} {job.id}")
            if not jobs:
                print(f"  no jobs of run {self.run_name(opts)}")
        return code

    async def _cancel(self, servers: list[ScrapydServer], opts: argparse.Namespace) -> int:
        name = self.run_name(opts)
        ended, errors = await cancel_jobs(name, servers, self.config().drain_seconds)
        print(f"run {name}: {ended} jobs ended" if ended or errors else f"run {name} has no jobs there")
        for error in errors:
            self.print_error(error)
        return ScrapydError.exit_code if errors else 0
