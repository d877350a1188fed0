"""Commands that work on a run, by its rules: everything is checked first, then the rules are agreed on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from crawlproj.console import RunCommand, given_settings, no_spider, spoken
from crawlproj.errors import BadArgument, CannotStart, Problem, RedisRefused, RedisUnreachable

if TYPE_CHECKING:
    from crawlproj.config import Config
    from crawlproj.frontier.seeds import SeedCount, SeedSource
    from crawlproj.redisio.client import RedisClient
    from crawlproj.runs import Run
    from crawlproj.runs.rules import Terms


class RuledCommand(RunCommand):
    """A command that starts a process of a run, or admits seeds to it."""

    #: Whether its settings are those of the run.
    _obeys = False
    #: Whether what it was given was agreed on before, so that it counts no more.
    is_agreed = False

    def print_notice(self, opts: argparse.Namespace, text: str) -> None:
        """Print *text*; to stderr if the result is printed as JSON."""
        print(spoken(text), file=sys.stderr if opts.json else sys.stdout, flush=True)

    async def check(
        self,
        run: str,
        sources: Sequence[SeedSource],
        opts: argparse.Namespace,
        *,
        fetches: bool,
        skip_invalid: bool = False,
        spider: str = "web",
    ) -> None:
        """Raise CannotStart with everything that is wrong with the crawl. Creates nothing.

        *fetches*: processes of this machine will fetch and store pages. Raises BadArgument if there is no
        *spider* of this name.
        """
        from crawlproj import checks

        def problems_of(config: Config) -> list[Problem]:
            about = checks.crawl_problems if fetches else checks.seed_problems
            found = about(config, sources, skip_invalid=skip_invalid)
            if fetches:
                found += checks.port_problems(config)
                found += filter(None, [checks.log_problem(self.settings.get("LOG_FILE"))])
            return [*found, *(checks.disk_problems(config, run) if fetches or not config.redis_url else ())]

        config, wrong = self._read_config()
        config = config if wrong else self.config_of(spider)
        redis_problem = await checks.redis_problem(config)
        problems = problems_of(config)
        # A setting that cannot be read is not missing, too.
        unread = {problem.field for problem in wrong}
        problems = [problem for problem in problems if problem.field not in unread]
        if problems and not wrong and not redis_problem:
            # The rules of the run may have what is missing here.
            problems = problems_of(await self._foresee(run, config, opts))
        store_problem = checks.store_problem(config, run) if fetches and not wrong else None
        if problems := [*wrong, *problems, *filter(None, (redis_problem, store_problem))]:
            raise CannotStart(problems)

    async def _foresee(self, run: str, config: Config, opts: argparse.Namespace) -> Config:
        """Return what this command would obey on *run*."""
        from crawlproj.runs.rules import foresee

        # What is wrong with an embedded Redis is said by other checks, or when it is needed.
        with suppress(RedisRefused, RedisUnreachable, OSError):
            if self.has_crawl():
                async with self.client() as client:
                    return await foresee(client, run, config, self._given_rules(opts))
        return config

    async def open_run(self, client: RedisClient, name: str, shards: int | None = None) -> Run:
        """Open the run, creating it if needed; a child leaves that to its supervisor."""
        from crawlproj.runs import Run
        from crawlproj.runs.rules import is_given

        strict = is_given(self.settings, "CRAWL_PARTITIONS")
        config = self.config()
        return await Run.open(
            client,
            name,
            partitions=config.partitions,
            shards=shards,
            strict=strict,
            creates=not config.supervisor,
        )

    async def obey(
        self,
        run: Run,
        opts: argparse.Namespace,
        *,
        spider: str | None = None,
        may_set: bool = True,
        may_change: bool = False,
        yields: bool = False,
        say: Callable[[str], None] = print,
    ) -> Terms | None:
        """Agree with *run* on its rules, as `agree`, and obey them from now on: `config` has them.

        *spider*: '' for that of the run, or `web` if it has none.
        """
        from crawlproj.runs.rules import agree, read_rules, refusal

        rules = await read_rules(run)
        if spider is not None:
            spider = spider or (rules.spider if rules else "") or "web"
        config, given = self.config_of(spider or "web"), self._given_rules(opts)
        terms = await agree(
            run,
            config,
            given,
            spider=spider or "",
            may_set=may_set,
            may_change=may_change,
            yields=yields,
        )
        if terms is None:
            return None
        self._put_settings(terms.rules.plain())
        self._obeys = True
        for change in terms.changed:
            say(f"run {run.name}: {change}")
        if terms.kept:
            say(refusal(run.name, terms.kept))
        if terms.ignored and may_change:
            say(f"run {run.name} keeps its rules; settings.py says: {'; '.join(map(str, terms.ignored))}")
        return terms

    def _given_rules(self, opts: argparse.Namespace) -> set[str]:
        """Return the rules that a person gave to this command."""
        if self.is_agreed:
            return set()
        from crawlproj.config.rules import RULES
        from crawlproj.runs.rules import given_rules

        return given_rules(self.settings) | (given_settings(opts).keys() & RULES.keys())

    def _put_settings(self, values: Mapping[str, object]) -> None:
        if isinstance(self.settings, dict):
            self.settings.update(values)
        else:
            self.settings.setdict(values, priority="cmdline")

    def config_of(self, spider: str) -> Config:
        """Return the options with those that *spider* sets itself. Raises BadArgument if there is none."""
        if spider == "web":
            return self.config()
        from crawlproj.config import load_config

        return load_config(self._settings_of(spider).copy_to_dict())

    def warn_of_unused(self, spider: str) -> None:
        """Print which settings of Scrapy's were given and have no effect in a run of *spider*."""
        from crawlproj.config.foreign import unused_settings

        for sentence in unused_settings(self._settings_of(spider), spider):
            self.print_error(sentence)

    def _settings_of(self, spider: str) -> Any:
        """Return Scrapy's settings with those that *spider* sets itself. Raises BadArgument."""
        if spider == "web":
            return self.settings
        from scrapy.spiderloader import get_spider_loader

        loader, settings = get_spider_loader(self.settings), self.settings.copy()
        if spider not in (known := loader.list()):
            raise BadArgument(no_spider(spider, known))
        loader.load(spider).update_settings(settings)
        return settings

    def seed_sources(self, names: Sequence[str]) -> list[SeedSource]:
        from crawlproj.frontier.seeds import SeedSource

        return [SeedSource(name) for name in names]

    async def admit_seeds(self, run: Run, sources: Sequence[SeedSource]) -> SeedCount:
        """Admit the seeds in *sources*, printing the invalid ones. Raises SetBack if Redis lost some."""
        from crawlproj.frontier.exclusions import load_rules
        from crawlproj.frontier.frontier import Frontier
        from crawlproj.frontier.scope import Sites
        from crawlproj.frontier.seeds import admit_seeds

        config = self.config()
        rules, _ = load_rules(config)
        frontier = Frontier.of(run, config)
        # Of a run without rules they are recorded in any case: its rules may say that they count.
        sites = Sites(run.client, run.name, run.partitions)
        frontier.sites = Sites.of(run, config) if self._obeys else sites
        frontier.generation = run.client.generation
        return await admit_seeds(frontier, sources, rules, self.print_error, run.adding)
