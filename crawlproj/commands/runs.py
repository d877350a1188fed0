"""``scrapy runs``: list the runs in this Redis, or delete one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict

from crawlproj.console import RunCommand, spoken
from crawlproj.errors import BadArgument
from crawlproj.model.run import RunPaths
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.keys import check_run_name
from crawlproj.runs import Run
from crawlproj.runs.listing import RunLine, list_runs
from crawlproj.runs.processes import check_unused
from crawlproj.supervisor.claim import claim_run
from crawlproj.supervisor.progress import aligned


class Command(RunCommand):
    group = "look"
    # Refused, with what to do instead.
    run_help = argparse.SUPPRESS
    summary = "List all runs, or delete one"
    requires_crawl = True
    examples = """\
  scrapy runs                              one line per run: state, shards, pages, start time
  scrapy runs --json                       one JSON object per line
  scrapy runs --delete news                delete its URLs, queue and counters; keep its pages
  scrapy runs --delete news --pages --yes  delete its pages and dead letters too, without confirmation"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")
        parser.add_argument("--delete", metavar="NAME", default="", help="delete this run")
        parser.add_argument(
            "--pages",
            action="store_true",
            help="with --delete: also delete its pages and dead letters on disk",
        )
        parser.add_argument("--yes", action="store_true", help="with --delete: do not ask for confirmation")

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        if opts.delete:
            await self._delete(opts)
        elif opts.yes or opts.pages:
            raise BadArgument("--yes and --pages need --delete NAME; see: scrapy runs -h")
        elif opts.run:
            raise BadArgument(f"This command lists all runs; for one run: scrapy status --run {opts.run}")
        else:
            async with self.client() as client:
                lines = await list_runs(client)
            for row in (json.dumps(asdict(line)) for line in lines) if opts.json else table_of(lines):
                print(row)
            if not opts.json and any(line.interrupted for line in lines):
                print(spoken("interrupted: its processes were killed; to resume: scrapy run --run NAME"))

    async def _delete(self, opts: argparse.Namespace) -> None:
        from crawlproj.storage.aside import leftovers, remove_stored, remove_working_files, set_aside

        config, name = self.config(), check_run_name(opts.delete)
        paths, left = RunPaths(config.data, name), leftovers(config.data, name)
        files = _count_files(left)
        async with self.client() as client:
            run = await self._unused_run(client, name, files, may_be_gone=opts.pages and bool(left))
            if run is not None:
                # What was set aside of earlier runs of this name has names of its own.
                left = [place for place in left if place == paths]
                files = _count_files(left)
            what = f"run {name}" if run else f"what is left of run {name}"
            what += f" and its {files} page files" if opts.pages else ""
            if not opts.yes:
                _confirm(name, what)
            with claim_run(paths.directory, name) if paths in left else nullcontext():
                if run is not None:
                    await run.delete()
                for place in left if opts.pages else ():
                    remove_stored(place)
                kept = set_aside(paths)
                remove_working_files(paths)
        print(f"deleted {what}")
        if kept is not None:
            see = spoken(f"scrapy pages --run {kept.run}")
            print(f"kept its pages in {kept.pages}; to see them: {see}")
            print(spoken(f"to delete them: scrapy runs --delete {kept.run} --pages"))

    async def _unused_run(
        self, client: RedisClient, name: str, files: int, *, may_be_gone: bool
    ) -> Run | None:
        """Return the run to delete; None if it is gone and may be. Raises BadArgument if it is in use."""
        try:
            run = await Run.find(client, name, any_version=True)
        except BadArgument as exc:
            if may_be_gone:
                return None
            hint = f" To delete the {files} page files that are left of it, add --pages." if files else ""
            raise BadArgument(f"{exc}{hint}") from None
        await check_unused(run, self.config())
        return run


def _count_files(left: Iterable[RunPaths]) -> int:
    """Count the files of pages and items, in stores, too. Raises StoreUnavailable: nothing is deleted."""
    from crawlproj.storage.places import places_of

    folders = (
        folder for paths in left for place in places_of(paths) for folder in (place.pages, place.items)
    )
    return sum(1 for folder in folders if folder.is_dir() for _ in folder.iterdir())


def table_of(lines: Sequence[RunLine]) -> list[str]:
    """Return a heading and a row for each run."""
    if not lines:
        return ["no runs"]
    rows = [("run", "state", "reason", "shards", "fetched", "waiting", "stored", "created", "seconds")]
    rows += (
        (
            line.run,
            "interrupted" if line.interrupted else line.state,
            "no process left" if line.interrupted else line.reason or "-",
            f"{line.shards_alive}/{line.shards}",
            f"{line.fetched:,}",
            f"{line.waiting:,}",
            f"{line.stored:,}",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(line.created_ms / 1000)) if line.shards else "-",
            f"{line.ran_s:,.0f}",
        )
        for line in lines
    )
    return aligned(rows, [rows[0].index(name) for name in ("run", "state", "reason", "created")])


def _confirm(name: str, what: str) -> None:
    """Ask the user to type the name. Raises BadArgument if it differs, or stdin is not a terminal."""
    if not sys.stdin.isatty():
        raise BadArgument(
            f"Cannot ask for confirmation to delete {what}: stdin is not a terminal. Add --yes."
        )
    answer = input(f"This deletes {what} for good. Type the run's name to confirm: ")
    if answer.strip() != name:
        raise BadArgument(f"{answer.strip()!r} is not {name!r}: nothing was deleted.")
