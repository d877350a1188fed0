"""How a run ended, as `scrapy run` prints it."""

from __future__ import annotations

from typing import Any

from crawlproj.model.records import outcome_of
from crawlproj.model.run import RunPaths
from crawlproj.pages.queue import read_segments
from crawlproj.runs import Run, RunState
from crawlproj.runs.reasons import failure_lines, is_fruitless
from crawlproj.storage.objects import is_address
from crawlproj.storage.places import store_of
from crawlproj.storage.segments import segments_in


def summary_of(status: dict[str, Any], *, joined: bool = False) -> str:
    """Return how the run ended, what failed and why, where its pages are, and how to resume it."""
    return "\n".join([_how(status), *_failures(status), *_pages(status), *_resuming(status, joined)])


def complete(status: dict[str, Any], paths: RunPaths, spider: str, fetched_before: int) -> dict[str, Any]:
    """Add to *status* what only the end of a run shows."""
    status["spider"] = spider
    place = store_of(paths) or paths
    status["data"], status["pages"] = str(paths.directory), str(place.pages)
    status["items_directory"] = str(place.items)
    status["pages_fetched"] = status["fetched"]
    status["failed_by_reason"] = {
        reason: count for reason, count in status["by_reason"].items() if outcome_of(reason) == "failed"
    }
    fetched = max(0, status["fetched"] - fetched_before)
    status["pages_per_second"] = round(fetched / max(status["seconds"], 0.1), 1)
    return status


async def pages_elsewhere(run: Run, paths: RunPaths) -> int:
    """Return how many pages of *run* are in no file here: parsers write to the disk of their machine."""
    recorded = await read_segments(run.client, run.name)
    here = segments_in(paths.pages) | segments_in(paths.items)
    # What is in a store can be read from everywhere.
    away = (record for name, record in recorded.items() if name not in here and not is_address(record.data))
    return sum(record.pages for record in away)


def ended_fruitless(status: dict[str, Any]) -> bool:
    """Whether the run has ended by itself and no seed could be fetched."""
    by_itself = status["state"] == RunState.FINISHED or status["reason"].startswith("max_")
    return by_itself and is_fruitless(status)


def _how(status: dict[str, Any]) -> str:
    state, reason = status["state"], status["reason"]
    if state == RunState.FINISHED:
        how = f"finished in {status['seconds']} s"
    else:
        left = status["pages_queued"] + status["pages_being_parsed"]
        # Redis was unreachable, so its record was not changed.
        state = "interrupted" if state == RunState.RUNNING else state
        how = f"{state}{f' ({reason})' if reason else ''} after {status['seconds']} s"
        how += f" with {status['waiting']:,} URLs waiting and {left:,} pages not stored yet"
        how += f", {status['links_spilled']:,} links on disk" if status.get("links_spilled") else ""
    return (
        f"{how}: {status['fetched']:,} URLs fetched, {status['skipped']:,} not allowed, "
        f"{status['failed']:,} failed."
    )


def _failures(status: dict[str, Any]) -> list[str]:
    lines = []
    if ended_fruitless(status):
        lines = ["No seed could be fetched:", *failure_lines(status, all_kinds=True)]
    elif status["failed"]:
        lines = ["Failed most often:", *failure_lines(status)]
    parts = []
    if status["parked_domains"]:
        parts.append(f"domains parked: {status['parked_domains']:,} with {status['parked']:,} URLs")
    if status["trapped_kept"]:
        parts.append(f"URLs trapped: {status['trapped_kept']:,}")
    if parts:
        lines.append(f"{'; '.join(parts)}; see: scrapy parked --run {status['run']}")
    return lines


def _pages(status: dict[str, Any]) -> list[str]:
    elsewhere = status.get("pages_elsewhere", 0)
    if status["spider"] != "web":
        others = f" and elsewhere; to copy them: scrapy gather --run {status['run']}" if elsewhere else ""
        return [f"{status['items']:,} items are in {status['items_directory']}{others}"]
    stored, where = status["pages_stored"], status["pages"]
    if ended_fruitless(status):
        return [f"{stored:,} rows in {where} say why each URL has no page."] if stored else []
    others = (
        f", {elsewhere:,} elsewhere; to copy them: scrapy gather --run {status['run']}" if elsewhere else ""
    )
    lines = [f"{stored - elsewhere:,} pages are in {where}{others}"]
    if cut := status["pages_cut"]:
        lines.append(f"Truncated pages: {cut:,}; the rest was over CRAWL_MAX_BODY or never sent.")
    return lines


def _resuming(status: dict[str, Any], joined: bool) -> list[str]:
    state, reason, run = status["state"], status["reason"], status["run"]
    if state == RunState.FINISHED:
        return []
    if reason.startswith("max_"):
        option = reason.replace("_", "-")
        return [f"To resume: run the same command with a higher --{option}; 0 means no limit."]
    if joined:
        return [f"The other processes of run {run} continue, or resume it: scrapy run --run {run}"]
    if state == RunState.PAUSED:
        return [f"To resume: scrapy resume --run {run}, then run the same command."]
    return ["To resume: run the same command."]
