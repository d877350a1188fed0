"""``scrapy launch``: a run as jobs on scrapyd servers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crawlproj.supervisor.launch import PlannedJob, Unscheduled
    from crawlproj.supervisor.scrapyd import ScrapydServer


class Command(RunCommand):
    takes_arguments = True
    examples = """\
  scrapy launch --scrapyd http://localhost:6800 --shards 2 seeds.txt
  scrapy launch --scrapyd http://a:6800 --scrapyd http://b:6800 --shards 8 --parsers 4 --run news seeds.txt
  scrapy launch --scrapyd http://a:6800 --scrapyd http://b:6800 --run news --status
  scrapy launch --scrapyd http://a:6800 --scrapyd http://b:6800 --run news --cancel"""

    def syntax(self) -> str:
        return "[options] --scrapyd URL [--scrapyd URL ...] [FILE|URL ...]"

    def short_desc(self) -> str:
        return "Spread the shards and parsers of a run over scrapyd servers"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--scrapyd",
            action="append",
            default=[],
            metavar="URL",
            help="a server; with a username and password in the URL, or in ~/.netrc",
        )
        parser.add_argument("--shards", type=int, default=2, metavar="N", help="fetch processes (default 2)")
        parser.add_argument("--parsers", type=int, default=1, metavar="N", help="parse processes (default 1)")
        parser.add_argument(
            "--version", default="", metavar="V", help="of the deployed eggs (default: the newest)"
        )
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--status", action="store_true", help="list the jobs of the run")
        what.add_argument("--cancel", action="store_true", help="drain the jobs of the run")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.errors import BadArgument
        from crawlproj.supervisor.scrapyd import ScrapydServer

        servers = [ScrapydServer(address) for address in opts.scrapyd]
        names = [server.name for server in servers]
        if not names:
            raise BadArgument(
                "Name a server, as in --scrapyd http://localhost:6800; more of them share the jobs."
            )
        if len(set(names)) < len(names):
            raise BadArgument("A server is named twice with --scrapyd; name each once.")
        if (opts.status or opts.cancel) and args:
            raise BadArgument(f"--status and --cancel take no seeds; leave out {args[0]!r}.")
        if opts.status:
            return await self._status(servers, opts)
        if opts.cancel:
            return await self._cancel(servers, opts)
        return await self._launch(servers, args, opts)

    async def _launch(self, servers: list[ScrapydServer], args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.errors import BadArgument
        from crawlproj.supervisor.launch import (
            check_servers,
            handed_on,
            has_password,
            pending_after_start,
            plan_jobs,
            schedule_jobs,
        )
        from crawlproj.supervisor.scrapyd import ScrapydTrouble

        config = self.config()
        name = self.run_name(opts)
        for option, least in (("shards", 1), ("parsers", 0)):
            if getattr(opts, option) < least:
                raise BadArgument(f"--{option} {getattr(opts, option)}: at least {least} is needed.")
        settings = handed_on(config, dict(pair.split("=", 1) for pair in opts.set), servers)
        jobs = plan_jobs(name, opts.shards, opts.parsers, servers)
        await check_servers(servers, {job.spider for job in jobs}, opts.version)
        await self._refuse_if_scheduled(servers, name)
        begins = await self._prepare(name, args, opts.shards)
        print(f"run {name}: {begins}; shards: {opts.shards}, parsers: {opts.parsers}")
        if config.redis_url and has_password(config.redis_url):
            print("REDIS_URL has a password and is not handed on: each scrapyd needs it in its environment.")

        unscheduled = await schedule_jobs(jobs, settings, opts.version)
        missing = {lost.job.id for lost in unscheduled}
        scheduled = [job for job in jobs if job.id not in missing]
        self._show(servers, scheduled, unscheduled)
        try:
            for server, titles in (await pending_after_start(scheduled)).items():
                print(
                    f"{server} has no place for {', '.join(titles)} now (its max_proc): "
                    "pending until other jobs end."
                )
        except ScrapydTrouble as trouble:
            print(f"Whether all of them started is not known. {trouble}")
            return ScrapydTrouble.exit_code
        return ScrapydTrouble.exit_code if unscheduled else 0

    def _show(
        self,
        servers: Sequence[ScrapydServer],
        scheduled: Sequence[PlannedJob],
        unscheduled: Sequence[Unscheduled],
    ) -> None:
        for server in servers:
            print(server.name)
            for job in scheduled:
                if job.server is server:
                    print(f"  {job.title:<10} {job.id}")
        if not unscheduled:
            return
        print("not scheduled:")
        for lost in unscheduled:
            print(f"  {lost.job.title:<10} {lost.reason}")
        if scheduled:
            print(
                "The run goes on with what was scheduled; other shards do the work of those that are missing."
            )

    async def _prepare(self, name: str, args: list[str], shards: int) -> str:
        """Create the run or open it, and admit the seeds; returns with how much it begins, in words."""
        from crawlproj.errors import NoSeeds, ShardTaken
        from crawlproj.frontier.exclusions import load_rules
        from crawlproj.frontier.frontier import Frontier
        from crawlproj.frontier.seeds import admit_seeds
        from crawlproj.runs import Run
        from crawlproj.supervisor.entry import alive_in

        config = self.config()
        rules, _ = load_rules(config)
        async with self.door() as door:
            run = await Run.open(door, name, partitions=config.partitions, shards=shards)
            for number, holder in (await alive_in(run)).items():
                raise ShardTaken(
                    f"Run {name!r} is at work: shard {number} is process {holder.process.pid} on "
                    f"{holder.process.host}. Wait for its end, stop it, or choose another --run."
                )
            frontier = Frontier(door, name, run.partitions, domain_pages=config.domain_pages)
            count = await admit_seeds(frontier, args, rules, self.complain)
            if args and not count.given:
                raise NoSeeds("None of the seeds is valid; nothing was scheduled.")
            figures = await run.figures()
            if not figures.admitted:
                raise NoSeeds(f"Run {name!r} has no seeds yet: scrapy launch ... FILE-OR-URL")
            await run.set_shards(shards)
            # Or a parser that starts before the first shard would find that the run is over.
            await run.reopen()
        return f"new seeds: {count.new:,}" if count.new else f"goes on with {figures.waiting:,} URLs waiting"

    async def _refuse_if_scheduled(self, servers: list[ScrapydServer], name: str) -> None:
        from crawlproj.errors import ShardTaken
        from crawlproj.supervisor.launch import jobs_of
        from crawlproj.supervisor.scrapyd import ScrapydTrouble

        for server, jobs in (await jobs_of(name, servers)).items():
            if isinstance(jobs, ScrapydTrouble):
                raise jobs
            for job in jobs:
                if job.state != "finished":
                    raise ShardTaken(
                        f"Run {name!r} has a job on {server} already: {job.id} is {job.state}. Wait for its "
                        "end, drain it with --cancel, or choose another --run."
                    )

    async def _status(self, servers: list[ScrapydServer], opts: argparse.Namespace) -> int:
        from crawlproj.supervisor.launch import jobs_of
        from crawlproj.supervisor.scrapyd import ScrapydTrouble

        code = 0
        for server, jobs in (await jobs_of(self.run_name(opts), servers)).items():
            print(server)
            if isinstance(jobs, ScrapydTrouble):
                print(f"  {jobs}")
                code = jobs.exit_code
                continue
            for job in jobs:
                print(f"  {job.state:<9} {job.id}")
            if not jobs:
                print(f"  no job of run {self.run_name(opts)}")
        return code

    async def _cancel(self, servers: list[ScrapydServer], opts: argparse.Namespace) -> int:
        import sys

        from crawlproj.supervisor.launch import cancel_jobs
        from crawlproj.supervisor.scrapyd import ScrapydTrouble

        name = self.run_name(opts)
        ended, troubles = await cancel_jobs(name, servers, self.config().drain_seconds)
        print(f"run {name}: {ended} jobs ended" if ended or troubles else f"run {name} has no job there")
        for trouble in troubles:
            print(f"scrapy launch: {trouble}", file=sys.stderr)
        return ScrapydTrouble.exit_code if troubles else 0
