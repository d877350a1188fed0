"""Changing the rules and limits of a run, for all its processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

from crawlproj.config import Config
from crawlproj.config.rules import RULES
from crawlproj.errors import BadArgument
from crawlproj.runs import Limits, Run
from crawlproj.runs.rules import agree

#: Settings that say where the run is.
_WHERE = frozenset({"CRAWL_DATA", "REDIS_URL", "REDIS_PARAMS", "REDIS_PASSWORD_FILE", "LOG_LEVEL"})


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
