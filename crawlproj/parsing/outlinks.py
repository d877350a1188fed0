"""The links of parsed pages, on their way to the frontier: filtered, counted, admitted or spilled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from crawlproj.config import Config
from crawlproj.errors import RedisFull
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.scope import Sites
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate, Page
from crawlproj.model.run import RunPaths
from crawlproj.parsing.extract import Extract
from crawlproj.parsing.known import KnownLinks
from crawlproj.parsing.spill import SpilledLinks, SpillWriter
from crawlproj.runs import Run
from crawlproj.runs.rules import RulesWatch

#: How many links that look like traps are kept per batch for review; all are counted.
_MOST_TRAPS = 200
#: How deep sitemap indexes may nest: an index of indexes, and no further.
_MOST_SITEMAP_LEVELS = 3
#: The links of a batch of pages are admitted together, but not those of a batch of sitemaps.
_MOST_CANDIDATES = 10_000


class Outlinks:
    """Collects links until `admit`. Counts refused ones in *counts*, by reason, and new ones as "links".

    While Redis is short of ``room``, they go into ``spill``, to be sealed and recorded with their pages; when
    it has room again, ``spilled`` admits them.
    """

    def __init__(
        self, run: Run, config: Config, parser: str, counts: Counter[str], clock: Callable[[], float]
    ) -> None:
        directory = RunPaths(config.data, run.name).spills
        self._run = run
        self._frontier = Frontier.of(run, config)
        #: The sites that links are kept to; None: all links may be admitted.
        self._sites = Sites.of(run, config)
        self.spill = SpillWriter(directory, parser)
        self.spilled = SpilledLinks(run, self._frontier, directory, config.spill_share, clock)
        self.room = self.spilled.room
        self._max_redirects = config.max_redirects
        self._counts = counts
        self._rules, self._exclusions = load_rules(config)
        self._watch = RulesWatch(run, config, clock=clock)
        self._known = KnownLinks()
        self._known_of = b""
        self._candidates: dict[str, Candidate] = {}
        #: Links that look like traps: depth and reason.
        self._traps: dict[str, tuple[int, str]] = {}

    def start_over(self, generation: int) -> None:
        """Forget everything: Redis may have lost links that it had admitted."""
        self._frontier.generation = generation
        self.spilled.start_over()
        self._known.clear()
        self._candidates.clear()
        self._traps.clear()

    async def readmit(self) -> None:
        """Admit again what Redis may have lost, though the pages that had these links may be stored."""
        if await self._frontier.readmit():
            # A leader that did not notice may have ended the run.
            await self._run.reopen()

    @property
    def is_full(self) -> bool:
        return len(self._candidates) >= _MOST_CANDIDATES

    async def refresh(self, run_created: bytes, now_s: float) -> Config | None:
        """Follow the rules if they have changed; forget then, or if the run has, which links are known.

        Returns the new options if they have. Raises RunReplaced for another run than ours.
        """
        if run_created:
            self._run.check_created(int(run_created))
        config = await self._watch.look()
        if config is not None:
            self._rules.change(config)
            self._frontier.domain_pages = config.domain_pages
            self._sites = Sites.of(self._run, config)
            self._known.clear()
        has_changed = self._exclusions is not None and self._exclusions.reload_if_changed(now_s)
        if has_changed or run_created != self._known_of:
            self._known.clear()
            self._known_of = run_created
        return config

    def collect(self, page: Page, found: Extract) -> None:
        """Keep the links of *page* that the rules accept, for `admit`."""
        candidates = self._candidates
        if found.sitemaps and page.sitemap_level < _MOST_SITEMAP_LEVELS:
            extra = Extra(sitemap_level=page.sitemap_level + 1)
            for url in found.sitemaps:
                # Judged like seeds: sitemap.xml.gz has an extension that links may not have.
                if reason := self._rules.refusal(url, 0, None):
                    self._counts[f"filtered:{reason}"] += 1
                else:
                    candidates[url] = Candidate(url, page.depth, extra=extra)
        if found.refresh is not None:
            self._collect_refresh(page, found.refresh)
        # URLs in a sitemap count as linked from the home page.
        depth, refusal = 1 if page.sitemap_level else page.depth + 1, self._rules.refusal
        accepted = self._rules.still_accepted(depth, page.url)
        sites = self._sites
        for link in found.links if accepted is None else self._known.unknown(found.links, accepted):
            # The same link at two depths: the smaller one counts.
            known = candidates.get(link)
            if known is not None and known.depth <= depth:
                continue
            if sites is not None and sites.knows_outside(link):
                # Not even made a candidate: most pages link to the same few sites of others.
                self._counts["filtered:scope"] += 1
            elif reason := refusal(link, depth, page.url):
                self._counts[f"filtered:{reason}"] += 1
                if reason.startswith("trap_") and len(self._traps) < _MOST_TRAPS:
                    self._traps[link] = depth, reason
            else:
                candidates[link] = Candidate(link, depth)

    def _collect_refresh(self, page: Page, target: str) -> None:
        """Keep the target of a meta refresh, filtered and limited like that of a redirect."""
        known = self._candidates.get(target)
        if known is not None and known.depth <= page.depth:
            return
        reason = "redirects" if page.hops >= self._max_redirects else None
        if reason := reason or self._rules.refusal(target, page.depth, page.url):
            self._counts[f"filtered:{reason}"] += 1
        else:
            extra = Extra(page.hops).onward(page.url)
            self._candidates[target] = Candidate(target, page.depth, extra=extra)

    async def admit(self) -> int:
        """Admit what was collected, or spill it; returns how many links were new.

        Raises StoreUnavailable when it can be neither.
        """
        await self._drop_outside()
        if not self._candidates and not self._traps:
            return 0
        admitted = 0
        try:
            if await self.room.is_short():
                self.spill.append(self._candidates.values(), self._traps)
            else:
                admitted = await self._admit()
        except RedisFull:
            self.room.note_full()
            self.spill.append(self._candidates.values(), self._traps)
        self._counts["links"] += admitted
        self._known.add(self._candidates)
        self._candidates.clear()
        self._traps.clear()
        return admitted

    async def _drop_outside(self) -> None:
        """Drop the links that lead out of the sites, before any is spilled."""
        if self._sites is not None:
            kept, outside = await self._sites.within(self._candidates.values())
            if outside:
                self._candidates = {candidate.url: candidate for candidate in kept}
                self._counts["filtered:scope"] += outside

    async def admit_spilled(self, *, is_idle: bool) -> int | None:
        """As `SpilledLinks.admit`."""
        admitted = await self.spilled.admit(is_idle=is_idle)
        self._counts["links"] += admitted or 0
        return admitted

    async def _admit(self) -> int:
        admitted = await self._frontier.admit(self._candidates.values(), waits_for_room=False)
        if self._traps:
            await self._frontier.trap(self._traps, waits_for_room=False)
        return admitted.new

    async def close(self) -> None:
        await self.readmit()
        await self.spilled.close()

    def discard_spilled(self) -> None:
        """Discard what was spilled since the last commit: the pages will be parsed again."""
        self.spill.discard()
        # Some of the links known were only in there.
        self._known.clear()
