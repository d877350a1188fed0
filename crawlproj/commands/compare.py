"""``scrapy compare``: the same seeds crawled in single mode and sharded, before one decides."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawlproj.console import given_settings
from crawlproj.errors import EXIT_INTERRUPTED, BadArgument, CrawlError, NoSeeds
from crawlproj.ruled import RuledCommand

if TYPE_CHECKING:
    from crawlproj.frontier.seeds import SeedSource
    from crawlproj.redisio.client import RedisClient
    from crawlproj.report.comparison import Measured
    from crawlproj.report.stored import Stored
    from crawlproj.simweb.process import SimwebProcess
    from crawlproj.supervisor.stopsignals import StopSignals
    from crawlproj.supervisor.trial import Outcome, Trial

#: Pages of each crawl of real sites, unless --max-pages says otherwise: they are asked several times.
_MOST_PAGES = 200
#: The stem of the names of its runs.
_STEM = "compare"


@dataclass(slots=True)
class _Plan:
    sources: list[SeedSource]
    #: 0 for single mode, then the numbers of shards.
    shards: list[int]
    #: 0: no limit.
    max_pages: int
    #: Domains of the simulated web; 0: real sites.
    simweb: int
    settings: dict[str, str]
    output: Path
    stem: str
    #: What the simulated web's log says of each crawl.
    referees: list[str] = field(default_factory=list)

    @property
    def what(self) -> str:
        if self.simweb:
            return f"a simulated web, domains: {self.simweb:,}"
        return ", ".join(source.name for source in self.sources)


class Command(RuledCommand):
    group = "crawl"
    arguments = "[options] FILE|URL|- ..."
    summary = "Crawl the same seeds in single mode and sharded, and compare time, cost and texts"
    takes_arguments = True
    run_help = f"prefix of the names of its runs (default: {_STEM})"
    examples = """\
  scrapy compare --simweb 20                            on a simulated web: no real site gets a request
  scrapy compare https://example.org/ --max-pages 100   single mode, then two shards: 100 pages each
  scrapy compare seeds.txt --shards 2,4 -o compare.html single mode, two shards, four shards
  scrapy compare seeds.txt --json                       the figures as one JSON object
  scrapy compare seeds.txt --keep                       keep the runs, to look at their pages"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        for name, metavar, text in (
            ("shards", "N,N,...", "numbers of shards to compare with single mode (default: 2)"),
            ("max-pages", "N", f"stop each crawl after N pages (default: {_MOST_PAGES}; --simweb: no limit)"),
            ("simweb", "N", "crawl a simulated web of N domains"),
        ):
            parser.add_argument(f"--{name}", metavar=metavar, help=text)
        parser.add_argument(
            "-o", "--output", metavar="FILE", help="the page with charts (default: compare.html in --data)"
        )
        parser.add_argument("--keep", action="store_true", help="keep the runs and their pages")
        parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.report.comparison import verdict
        from crawlproj.supervisor.stopsignals import StopSignals

        plan = await self._plan(args, opts)
        self.print_notice(opts, self._notice(plan))
        with StopSignals() as stops:
            async with self.client() as client, self._trials(client, plan, opts) as trials:
                crawls = await self._crawl_all(client, plan, trials, stops)
        if stops.count:
            self.print_error("interrupted; nothing was compared.")
            return EXIT_INTERRUPTED
        sentences = [*verdict(crawls, os.cpu_count() or 1), *plan.referees]
        self._show(plan, crawls, sentences, opts)
        return 0

    # -- before anything is made --

    async def _plan(self, args: list[str], opts: argparse.Namespace) -> _Plan:
        from crawlproj.simweb.process import CRAWL_SETTINGS
        from crawlproj.supervisor.plan import amount_from

        simweb = amount_from("simweb", opts.simweb, 1) or 0
        if simweb and args:
            raise BadArgument(f"--simweb has its own seeds; leave out {args[0]!r}.")
        if not simweb and not args:
            raise NoSeeds("Give seeds to compare on: scrapy compare FILE-OR-URL ..., or --simweb 20")
        max_pages = amount_from("max-pages", opts.max_pages, 1)
        shards = _shards_from(opts.shards or "2")
        # Given to every crawl, and last: a domain must rest from one crawl to the next.
        settings = (CRAWL_SETTINGS if simweb else {}) | given_settings(opts) | {"CRAWL_SHARE_DELAYS": "True"}
        if opts.loglevel:
            settings["LOG_LEVEL"] = opts.loglevel
        self._put_settings(settings)
        stem = opts.run or _STEM
        sources = self.seed_sources(args)
        await self.check(f"{stem}-single", sources, opts, fetches=True)
        config = self.config()
        if max(shards) > config.partitions:
            raise BadArgument(f"--shards {max(shards)}: at most {config.partitions}, one per partition.")
        output = Path(opts.output) if opts.output else config.data / "compare.html"
        if opts.output and (output.is_dir() or not os.access(output.parent, os.W_OK)):
            raise BadArgument(f"Cannot write {str(output)!r}. Choose another file with -o FILE.")
        limit = max_pages or (0 if simweb else _MOST_PAGES)
        return _Plan(sources, [0, *shards], limit, simweb, settings, output, stem)

    def _notice(self, plan: _Plan) -> str:
        """Return what is about to happen, and what it means for the sites."""
        times = len(plan.shards)
        modes = ", ".join(f"{count} shards" if count else "single mode" for count in plan.shards)
        if plan.simweb:
            return f"comparing on {plan.what}: {modes}"
        return (
            f"comparing on {plan.what}: {modes}\n"
            f"Each site is asked {times} times over: at most {plan.max_pages:,} pages in each of {times} "
            f"crawls, one after the other, with at least {self.config().download_delay:g} s between two "
            "requests to a domain, also from one crawl to the next."
        )

    @asynccontextmanager
    async def _trials(
        self, client: RedisClient, plan: _Plan, opts: argparse.Namespace
    ) -> AsyncIterator[list[Trial]]:
        """Make room for the trials. At the end delete their runs, or say that and where they are kept."""
        from crawlproj.supervisor.trial import delete_trial, plan_trials

        config = self.config()
        trials = await plan_trials(client, config, plan.stem, plan.shards)
        keeps = opts.keep
        try:
            yield trials
        except CrawlError:
            # To see why it failed.
            keeps = True
            raise
        finally:
            # Not one by one: the next crawl must know when the last asked a domain.
            deleted = [trial for trial in trials if not keeps and await delete_trial(client, config, trial)]
            left = [trial.run for trial in trials if trial not in deleted and self._is_there(trial)]
            for run in left:
                self.print_notice(opts, f"kept run {run}; to delete it: scrapy runs --delete {run} --pages")

    def _is_there(self, trial: Trial) -> bool:
        from crawlproj.model.run import RunPaths

        return RunPaths(self.config().data, trial.run).directory.exists()

    # -- the crawls --

    async def _crawl_all(
        self, client: RedisClient, plan: _Plan, trials: Sequence[Trial], stops: StopSignals
    ) -> list[Measured]:
        from crawlproj.report.comparison import stored_texts

        crawls: list[Measured] = []
        texts: dict[str, int] = {}
        port = 0
        for trial in trials:
            with self._simweb(plan, trial, port) or nullcontext() as simweb:
                outcome, stored = await self._crawl(client, plan, trial, simweb, stops)
                if stops.count:
                    break
                if simweb is not None:
                    port = simweb.port
                    plan.referees.append(f"{trial.name}: {_judge(simweb, plan, outcome)}")
            measured = await self._measure(client, trial, outcome, stored)
            crawls.append(replace(measured, texts=stored_texts(stored.texts, texts or stored.texts)))
            texts = texts or stored.texts
            if trial is not trials[-1]:
                await self._rest(client, trial, stops)
        return crawls

    def _simweb(self, plan: _Plan, trial: Trial, port: int) -> SimwebProcess | None:
        """Return a new simulated web at *port*: pages that fail at first fail for every crawl."""
        if not plan.simweb:
            return None
        from crawlproj.model.run import RunPaths
        from crawlproj.simweb.process import SimwebProcess, web_to_try

        directory = RunPaths(self.config().data, trial.run).directory
        return SimwebProcess(replace(web_to_try(plan.simweb), port=port), directory)

    async def _crawl(
        self,
        client: RedisClient,
        plan: _Plan,
        trial: Trial,
        simweb: SimwebProcess | None,
        stops: StopSignals,
    ) -> tuple[Outcome, Stored]:
        from crawlproj.report.stored import read_stored
        from crawlproj.supervisor.trial import TrialRun

        run = TrialRun(trial, client, self.config(), plan.settings, plan.max_pages)
        print(f"{trial.name}:", file=sys.stderr, flush=True)
        # A copy: the same seeds for every crawl, also from a pipe or a file that changes.
        seeds = run.paths.directory / "seeds.txt"
        seeds.parent.mkdir(parents=True, exist_ok=True)
        lines = simweb.seeds() if simweb else [line for source in plan.sources for _, line in source.lines()]
        seeds.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        outcome = await run.crawl(seeds, stops)
        return outcome, read_stored(run.paths.pages)

    async def _measure(self, client: RedisClient, trial: Trial, outcome: Outcome, stored: Stored) -> Measured:
        from crawlproj.report.comparison import Measured, SlowDomain
        from crawlproj.runs import Run
        from crawlproj.runs.overview import domains_of
        from crawlproj.supervisor.trial import reached_limit

        status = outcome.status
        domains = await domains_of(await Run.find(client, trial.run))
        candidates = [
            SlowDomain(
                domain := line["domain"],
                pages := stored.responses[domain],
                line["delay_ms"] / 1000,
                stored.latency_s[domain] / max(1, pages),
            )
            for line in (*domains["hottest_domains"], *domains["slowest_domains"])
        ]
        return Measured(
            name=trial.name,
            shards=trial.shards,
            pages=status["fetched"],
            domains=len(stored.responses),
            failed=status["failed"],
            seconds=status["seconds"],
            fetching_s=min(stored.fetching_s, status["seconds"]),
            cpu_s={**status["cpu_seconds"], "redis": outcome.redis_cpu_s},
            memory_bytes=outcome.memory_bytes,
            redis_bytes=outcome.redis_bytes,
            slowest=max(candidates, key=lambda one: one.least_s, default=None),
            limit=reached_limit(status),
        )

    async def _rest(self, client: RedisClient, trial: Trial, stops: StopSignals) -> None:
        """Wait for domains with a delay that is longer than the next crawl would remember it."""
        from crawlproj.runs import Run
        from crawlproj.runs.overview import domains_of

        config = self.config()
        slowest = (await domains_of(await Run.find(client, trial.run)))["slowest_domains"]
        longest_s = max((line["delay_ms"] / 1000 for line in slowest), default=0.0)
        if longest_s > config.shard_lease_seconds + config.download_timeout:
            print(f"waiting {longest_s:g} s, the longest delay", file=sys.stderr, flush=True)
            await stops.wait(longest_s)

    # -- the result --

    def _show(
        self, plan: _Plan, crawls: Sequence[Measured], sentences: Sequence[str], opts: argparse.Namespace
    ) -> None:
        from crawlproj.report.comparison import table_of
        from crawlproj.report.comparison_page import render_comparison
        from crawlproj.supervisor.progress import aligned

        page = render_comparison(plan.what, crawls, sentences, made_at=datetime.now(UTC))
        plan.output.write_text(page, "utf-8")
        if opts.json:
            print(json.dumps(_figures(plan, crawls, sentences)))
            return
        print("\n".join(["", *aligned(table_of(crawls), left=[0]), "", *sentences, "", str(plan.output)]))


def _shards_from(text: str) -> list[int]:
    counts = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if not all(counts) or len(set(counts)) < len(counts):
        raise BadArgument(f"--shards {text}: must be different numbers from 1 on, such as 2 or 2,4.")
    return counts


def _judge(simweb: SimwebProcess, plan: _Plan, outcome: Outcome) -> str:
    """Return what the log of the simulated web says of a crawl."""
    referee = simweb.referee()
    delay_ms = float(plan.settings["DOWNLOAD_DELAY"]) * 1000
    verdict = referee.verdict(min_gap_ms=delay_ms, complete=outcome.status["state"] == "finished")
    facts = "; ".join(verdict.report().splitlines())
    return f"the simulated web's own log {'agrees' if verdict.ok else 'disagrees'}: {facts}."


def _figures(plan: _Plan, crawls: Sequence[Measured], sentences: Sequence[str]) -> dict[str, Any]:
    return {
        "seeds": plan.what,
        "max_pages": plan.max_pages,
        "crawls": [
            asdict(crawl)
            | {
                "mode": "sharded" if crawl.shards else "single",
                "pages_per_second": round(crawl.pages_per_s, 2),
                "cpu_ms_per_page": round(crawl.cpu_ms_per_page, 3),
            }
            for crawl in crawls
        ],
        "verdict": list(sentences),
        "page": str(plan.output),
    }
