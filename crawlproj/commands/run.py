"""``scrapy run``: a whole crawl on this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from crawlproj.redisio.client import Door


class Command(RunCommand):
    takes_arguments = True
    examples = """\
  scrapy run seeds.txt --shards 2 --parsers 1        every line a URL or a domain
  scrapy run https://example.org/ --run example      its pages go to data/runs/example/pages
  scrapy run --simweb 40                             a simulated web of 40 domains, judged by its own log
  scrapy run                                         goes on with what was interrupted"""

    def syntax(self) -> str:
        return "[options] [FILE|URL ...]"

    def short_desc(self) -> str:
        return "Run a whole crawl on this machine: shards, parsers, progress"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--shards", type=int, default=2, metavar="N", help="fetch processes (default 2)")
        parser.add_argument("--parsers", type=int, default=1, metavar="N", help="parse processes (default 1)")
        parser.add_argument("--simweb", type=int, metavar="N", help="crawl a simulated web of N domains")
        parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        import json

        from crawlproj.errors import BadArgument
        from crawlproj.supervisor.crawl import changed_settings

        for name in ("shards", "parsers", "simweb"):
            if getattr(opts, name) is not None and getattr(opts, name) < 1:
                raise BadArgument(f"--{name} {getattr(opts, name)}: at least 1 is needed.")
        settings = changed_settings(opts.set) | {"CRAWL_DATA": str(self.config().data)}
        if opts.simweb and args:
            raise BadArgument(f"--simweb brings its own seeds; leave out {args[0]!r}.")
        code, summary = await (
            self._simulated(opts, settings) if opts.simweb else self._real(args, opts, settings)
        )
        if opts.json:
            print(json.dumps(summary))
        return code

    async def _real(
        self, args: list[str], opts: argparse.Namespace, settings: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        from crawlproj.frontier.seeds import seed_lines

        async with self.door() as door:
            lines = [(source, line) for source in args for line in seed_lines(source)]
            return await self._crawl(door, self.run_name(opts), lines, opts, settings)

    async def _simulated(
        self, opts: argparse.Namespace, settings: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        import json

        from crawlproj.simweb.process import SimwebProcess
        from crawlproj.simweb.spec import WorldSpec
        from crawlproj.supervisor.crawl import fresh_run_name, run_directory

        settings.setdefault("CRAWL_ALLOW_ADDRESSES", "127.0.0.0/8")
        settings.setdefault("DOWNLOAD_DELAY", "0.2")
        settings.setdefault("CRAWL_BACKOFF_SECONDS", "1")
        settings.setdefault("CRAWL_SEGMENT_SECONDS", "5")
        async with self.door() as door:
            name = opts.run or await fresh_run_name(door, "simweb")
            directory = run_directory(self.config().data, name)
            world = directory / "world.json"
            # An interrupted run goes on in the same web, at the same addresses.
            spec = WorldSpec(domains=opts.simweb, pages_per_domain=25)
            if world.exists():
                spec = WorldSpec.from_json(world.read_text())
                await self._refuse_if_at_work(door, name)
            with SimwebProcess(spec, directory) as simweb:
                world.write_text(json.dumps(json.loads(spec.to_json()) | {"port": simweb.port}))
                seeds = [("simweb", (n, url)) for n, url in enumerate(simweb.seeds(), 1)]
                code, summary = await self._crawl(door, name, seeds, opts, settings)
                referee = simweb.referee()
            if code == 0:
                delay_ms = float(settings["DOWNLOAD_DELAY"]) * 1000
                verdict = referee.verdict(min_gap_ms=lambda domain: referee.required_gap_ms(domain, delay_ms))
                summary["referee"] = verdict.report()
                self._say(opts, f"the simulated web's own log says: {verdict.report()}")
                code = 0 if verdict.ok else 1
        return code, summary

    async def _crawl(
        self,
        door: Door,
        name: str,
        lines: list[tuple[str, tuple[int, str]]],
        opts: argparse.Namespace,
        settings: dict[str, str],
    ) -> tuple[int, dict[str, Any]]:
        import sys

        from crawlproj.errors import NoSeeds
        from crawlproj.frontier.exclusions import load_rules
        from crawlproj.frontier.frontier import Frontier
        from crawlproj.frontier.seeds import parse_seeds
        from crawlproj.runs import Run
        from crawlproj.supervisor.crawl import Crawl

        config = self.config()
        run = await Run.open(door, name, partitions=config.partitions, shards=opts.shards)
        await self._refuse_if_at_work(door, name)
        candidates = []
        rules, _ = load_rules(config)
        for source, line in lines:
            for seed in parse_seeds([line], rules):
                if isinstance(seed, str):
                    print(f"scrapy run: {source}, {seed}", file=sys.stderr)
                else:
                    candidates.append(seed)
        if lines and not candidates:
            raise NoSeeds("None of the seeds is valid; nothing was started.")
        admitted = await Frontier(door, name, run.partitions, domain_pages=config.domain_pages).admit(
            candidates
        )
        if admitted.new:
            await run.reopen()
        figures = await run.figures()
        if not figures.admitted:
            raise NoSeeds(f"Run {name!r} has no seeds yet: scrapy run FILE-OR-URL ...")
        await run.set_shards(opts.shards)
        crawl = Crawl(run, config, opts.shards, opts.parsers, settings)
        self._say(
            opts,
            f"run {name}: {_begins(admitted.new, figures.waiting)}; "
            f"shards: {opts.shards}, parsers: {opts.parsers}; "
            f"logs in {crawl.directory / 'logs'}",
        )
        code, summary = await crawl.go()
        summary["pages"] = str(crawl.directory / "pages")
        if code == 0:
            self._say(
                opts,
                f"finished in {summary['seconds']} s: {summary['fetched']:,} URLs fetched, "
                f"{summary['skipped']:,} not allowed, {summary['failed']:,} failed.{_aside(summary)}\n"
                f"{summary['pages_stored']:,} pages are in {summary['pages']}",
            )
        else:
            left = summary["pages_queued"] + summary["pages_being_parsed"]
            self._say(
                opts,
                f"stopped with {summary['waiting']:,} URLs waiting and {left:,} pages not stored yet; "
                "the same command goes on from here",
            )
        return code, summary

    async def _refuse_if_at_work(self, door: Door, name: str) -> None:
        from crawlproj.errors import ShardTaken
        from crawlproj.runs import Run

        if not await Run(door, name, 1).state():
            return
        run = await Run.find(door, name)
        for number, holder in (await run.read_map()).alive.items():
            if holder.process.is_dead():
                continue
            raise ShardTaken(
                f"Run {name!r} is at work: shard {number} is process {holder.process.pid} on "
                f"{holder.process.host}. Wait for its end, stop it, or choose another --run. "
                "To add seeds to it: scrapy seed."
            )

    def _say(self, opts: argparse.Namespace, text: str) -> None:
        import sys

        print(text, file=sys.stderr if opts.json else sys.stdout, flush=True)


def _begins(new: int, waiting: int) -> str:
    return f"new seeds: {new:,}" if new else f"goes on with {waiting:,} URLs waiting"


def _aside(summary: dict[str, Any]) -> str:
    """Say what was set aside; nothing if nothing was."""
    parts = []
    if summary["parked_domains"]:
        parts.append(f"domains parked: {summary['parked_domains']:,} with {summary['parked']:,} URLs")
    if summary["trapped_kept"]:
        parts.append(f"URLs taken for traps: {summary['trapped_kept']:,}")
    return f"\n{'; '.join(parts)}; see: scrapy parked --run {summary['run']}" if parts else ""
