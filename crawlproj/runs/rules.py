"""The rules of a run, in its record: every process of the run obeys them, however it was started.

The first process that works on a run sets them, from its own settings. A later one that was given another
value for one of them is refused, or changes it for all; what it was not given, it takes from the run.
"""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from crawlproj.config import Config, load_config
from crawlproj.config.rules import RULES, Difference, Rules, shown
from crawlproj.errors import BadArgument, RunMismatch
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.runs.record import Run

#: The priority that Scrapy gives to settings of the command line. What is below is code.
_COMMAND_LINE = 40
#: How often a process looks for changes.
_LOOK_S = 1.0


class Settings(Protocol):
    """What we need of Scrapy's settings; a command without Scrapy has a dict."""

    def get(self, name: str, /) -> Any: ...


def is_given(settings: Settings, name: str) -> bool:
    """Whether a person gave this setting to the process: on the command line, or in the environment."""
    priority = settings.getpriority(name) if hasattr(settings, "getpriority") else None
    if priority is not None and priority >= _COMMAND_LINE:
        return True
    return name in (settings.get("FROM_ENVIRONMENT") or ())


def given_rules(settings: Settings) -> set[str]:
    """Return the rules that a person gave to the process."""
    return {name for name in RULES if is_given(settings, name)}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a process obeys: the rules of the run, and its own options with them."""

    rules: Rules
    config: Config
    #: What it has changed for all.
    changed: Sequence[Difference] = ()
    #: Where the settings of its code say something else.
    ignored: Sequence[Difference] = ()
    #: Where it was given something else, and yields to the run.
    kept: Sequence[Difference] = ()


async def read_rules(run: Run) -> Rules | None:
    """Return the rules of *run*; None if no process has set them yet."""
    text = await _read_text(run)
    return Rules.decode(text, run.name) if text else None


async def foresee(client: RedisClient, run: str, config: Config, given: Collection[str]) -> Config:
    """Return what a process will obey on *run*, which need not exist; what was *given* may be refused yet."""
    rules = await read_rules(Run(client, run, 1))
    return rules.obeyed_by(config, RULES.keys() - set(given)) if rules else config


async def agree(
    run: Run,
    config: Config,
    given: Collection[str],
    *,
    spider: str = "",
    may_set: bool = True,
    may_change: bool = False,
    yields: bool = False,
) -> Terms | None:
    """Return what a process with *config*, of which the settings in *given* count, is to obey on *run*.

    It sets the rules of a run that has none, if it *may_set* them; else None is returned. Raises RunMismatch
    if it was given other values, unless it *may_change* these or *yields* to the run, and for another
    *spider*.
    """
    while True:
        text = await _read_text(run)
        changes: list[Difference] = []
        kept: list[Difference] = []
        if text:
            rules = Rules.decode(text, run.name)
            _check_spider(run, rules, spider)
            differing = rules.differing(config, given)
            changes = [one for one in differing if one.is_changeable and (may_change or one.before is None)]
            kept = [one for one in differing if yields and one.is_changeable and one not in changes]
            if refused := [one for one in differing if one not in (*changes, *kept)]:
                raise RunMismatch(refusal(run.name, refused))
            _check_changes(run.name, rules, changes)
            rules = rules.changed(changes, _who(), await server_ms(run.client))
        elif not may_set:
            return None
        else:
            rules = Rules.of(await _first(run, config, given), spider)
        if rules.encode() == text or await _write_text(run, text, rules.encode()):
            # A default is nobody's word: what the run was given once need not be given again.
            said = Rules.of(config, spider).unusual().keys() - set(given)
            ignored = rules.differing(config, said) if text else []
            return Terms(rules, rules.obeyed_by(config), changes, ignored, kept)


def refusal(run: str, differences: Sequence[Difference]) -> str:
    """Return why a process was refused: the values of the run, those given, and what to do."""
    values = "; ".join(
        f"{one.name} is {shown(one.before)} in the run, and {shown(one.after)} was given"
        for one in differences
    )
    remedy = "Leave it out, or use another run name"
    if all(one.is_changeable for one in differences):
        words = " ".join(f"-s {one.name}={_quoted(one.after)}" for one in differences)
        remedy = f"Leave it out, or change it for the whole run: scrapy run --change --run {run} {words}"
    return f"Run {run!r} has its own rules: {values}. {remedy}."


class RulesWatch:
    """Follows the rules of a run. ``config`` is what this process obeys now."""

    def __init__(
        self,
        run: Run,
        config: Config,
        rules: Rules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self._run = run
        self._clock = clock
        self._text = rules.encode() if rules else ""
        self._looked_s = float("-inf")

    async def look(self) -> Config | None:
        """Return the new options if the rules have changed; reads them at most once a second."""
        if self._clock() - self._looked_s < _LOOK_S:
            return None
        self._looked_s = self._clock()
        return self.follow(await _read_text(self._run))

    def follow(self, text: str) -> Config | None:
        """The same for rules that were read already. Raises RunMismatch if more than may change is new."""
        if not text or text == self._text:
            return None
        rules = Rules.decode(text, self._run.name)
        fixed = [one for one in rules.differing(self.config) if not one.is_changeable]
        if fixed:
            values = "; ".join(str(replace(one, before=one.after, after=one.before)) for one in fixed)
            raise RunMismatch(
                f"Run {self._run.name!r} got other rules while in use: {values}. Start this process again."
            )
        self._text = text
        before, self.config = self.config, rules.obeyed_by(self.config)
        return self.config if self.config != before else None

    async def restore(self) -> None:
        """Set the rules as we know them if Redis has lost them."""
        if self._text:
            await _write_text(self._run, "", self._text)


async def _read_text(run: Run) -> str:
    text = await run.client.command("HGET", keys.run_record(run.name), "rules")
    return text.decode() if text else ""


async def _write_text(run: Run, before: str, after: str) -> bool:
    arguments = [before, after, keys.wake_channel(run.name)]
    if await run.client.run("change_rules", [keys.run_record(run.name)], arguments):
        return True
    # Raises RunMismatch for a deleted run.
    await run.read_map()
    return False


async def _first(run: Run, config: Config, given: Collection[str]) -> Config:
    """Return the options whose rules a run without rules gets."""
    if config.scope != "sites" or "CRAWL_SCOPE" in given or await has_sites(run):
        return config
    # It is of an earlier release, which followed all links.
    is_old = (await run.read_counters()).admitted > 0
    return replace(config, scope="everything") if is_old else config


async def has_sites(run: Run) -> bool:
    """Whether any site was added to the scope of *run*."""
    return bool(await run.client.command("HEXISTS", keys.run_record(run.name), "sites_ms"))


def _check_spider(run: Run, rules: Rules, spider: str) -> None:
    if spider and rules.spider and spider != rules.spider:
        raise RunMismatch(
            f"Run {run.name!r} is one of the spider {rules.spider!r}, not of {spider!r}. Choose another run "
            f"name for {spider!r}."
        )


def _check_changes(run: str, rules: Rules, changes: Sequence[Difference]) -> None:
    """Raise BadArgument or BadSetting for changes that cannot be made."""
    for one in changes:
        if one.name == "CRAWL_SCOPE" and one.after == "sites":
            raise BadArgument(
                f"CRAWL_SCOPE={shown(one.before)} of run {run!r} cannot become sites: the sites of its seeds "
                "were not recorded. Choose another scope, or another run name."
            )
    load_config(rules.changed(changes, "", 0).plain())


def _who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A container may have no user names.
        name = "?"
    return f"{name}@{socket.gethostname()}"


def _quoted(value: Any) -> str:
    text = "" if value in (None, (), "") else shown(value)
    return f"'{text}'" if any(character in text for character in ' {}[]"$&|;<>()*?\\') else text
