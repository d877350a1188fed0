"""Changing the rules and limits of a run, for all its processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

from crawlproj.config import Config
from crawlproj.config.rules import RULES
from crawlproj.errors import BadArgument
from crawlproj.runs import Limits, Run, RunState
from crawlproj.runs.leader import limit_reached
from crawlproj.runs.rules import agree

#: Settings that say where the run is.
_WHERE = frozenset({"CRAWL_DATA", "REDIS_URL", "REDIS_PARAMS", "REDIS_PASSWORD_FILE", "LOG_LEVEL"})

#: States that a limit does not change.
_STAYS = frozenset({RunState.PAUSED, RunState.FINISHED})


async def change_run(
    run: Run, config: Config, given: Collection[str], limits: Mapping[str, int | float | None]
) -> list[str]:
    """Change the rules that were *given*, as *config* says, and *limits*; returns what has changed.

    Processes at work follow within seconds. Raises BadArgument, BadSetting or RunMismatch for what cannot be.
    """
    foreign = sorted(set(given) - RULES.keys() - _WHERE)
    if foreign:
        raise BadArgument(
            f"{foreign[0]} belongs to a process, not to the run: give it to the processes when they start. "
            "docs/settings.md says what belongs to a run."
        )
    given = set(given) & RULES.keys()
    if not given and not any(amount is not None for amount in limits.values()):
        raise BadArgument("Give what to change, for example: --change -s DOWNLOAD_DELAY=5 --max-pages 1000")
    terms = await agree(run, config, given, may_change=True)
    assert terms is not None
    before = asdict((await run.read_map()).limits)
    after = asdict(await set_limits(run, limits))
    changed = [
        f"max-{name} {before[name]:g} -> {after[name]:g}" for name in after if after[name] != before[name]
    ]
    return [*map(str, terms.changed), *changed]


async def set_limits(run: Run, given: Mapping[str, int | float | None]) -> Limits:
    """Change the limits given and keep the others; returns all of them."""
    changes = {name: amount for name, amount in given.items() if amount is not None}
    before = (await run.read_map()).limits
    limits = replace(before, **cast(dict[str, Any], changes))
    if limits != before:
        await run.set_limits(limits)
    return limits


async def stop_at_limit(run: Run) -> str:
    """Return the limit that *run* has reached already, '' for none; if so, the run is stopped.

    Nobody else works on it. A run with pages or links that are not stored yet is started all the same.
    """
    counters, run_map = await run.read_counters(), await run.read_map()
    limit = limit_reached(run_map.limits, counters, run_map.ran_s)
    if not limit or counters.unstored or counters.spilled or run_map.state in _STAYS:
        return ""
    if not await run.change(RunState.STOPPED, limit):
        # It keeps why it was stopped before.
        await run.update(reason=limit)
    return limit
