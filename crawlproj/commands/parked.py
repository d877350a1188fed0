"""``scrapy parked``: parked domains and trapped URLs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from crawlproj.console import RunCommand
from crawlproj.errors import BadArgument, BadUrl
from crawlproj.model.urls import domain_named
from crawlproj.redisio.clock import server_ms
from crawlproj.runs import Run
from crawlproj.supervisor.progress import aligned

if TYPE_CHECKING:
    from crawlproj.frontier.parking import Choice, ParkedDomain, Parking


class Command(RunCommand):
    summary = "List parked domains and trapped URLs, or release them"
    requires_crawl = True
    examples = """\
  scrapy parked                                   list parked domains and trapped URLs
  scrapy parked --domain example.org --limit 500  only those of one domain
  scrapy parked --release --domain example.org    crawl it again at once, its trapped URLs included
  scrapy parked --release --reason failures       release every domain that failed too often
  scrapy parked --release --all                   release everything

Released URLs are fetched by running shards, or by the next ones started. Running shards still treat other
URLs of the same shape as traps; trap counts start from zero when a shard restarts."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--domain", action="append", default=[], metavar="D", help="only this domain (repeatable)"
        )
        parser.add_argument("--reason", default="", metavar="R", help="only this reason")
        parser.add_argument(
            "--limit", type=int, default=50, metavar="N", help="list at most N of each kind (default 50)"
        )
        parser.add_argument("--release", action="store_true", help="release the selected domains and URLs")
        parser.add_argument("--all", action="store_true", help="with --release: release everything")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawlproj.frontier.parking import Parking

        choice = _choice(opts)
        async with self.found_run(opts) as run:
            parking = Parking(run.client, run.name, run.partitions)
            if opts.release:
                await self._release(run, parking, choice, opts)
            else:
                await self._list(run, parking, choice, opts)

    async def _list(self, run: Run, parking: Parking, choice: Choice, opts: argparse.Namespace) -> None:
        domains, domain_count = await parking.list_domains(choice, opts.limit)
        urls, url_count = await parking.list_urls(choice, opts.limit)
        if opts.json:
            found = {
                "run": run.name,
                "domains_total": domain_count,
                "domains": [_record(parked, "domain reason urls failures back_ms") for parked in domains],
                "urls_total": url_count,
                "urls": [_record(trapped, "url domain reason depth trapped_ms") for trapped in urls],
            }
            print(json.dumps(found))
            return
        now_ms = await server_ms(run.client)
        print(f"run {run.name}: {domain_count:,} domains parked, {url_count:,} URLs trapped")
        if domains:
            rows = [("domain", "reason", "URLs", "failures", "retry")]
            rows += (
                (d.domain, d.reason, f"{d.urls:,}", f"{d.failures:,}", _back(d, now_ms)) for d in domains
            )
            _print_table(aligned(rows, (0, 1, 4)), domain_count - len(domains))
        if urls:
            table = [("reason", "when", "URL")]
            table += ((url.reason, f"{_duration(now_ms - url.trapped_ms)} ago", url.url) for url in urls)
            _print_table(aligned(table, range(3)), url_count - len(urls))

    async def _release(self, run: Run, parking: Parking, choice: Choice, opts: argparse.Namespace) -> None:
        async with run.adding():
            domains, urls = await parking.release(choice)
        if domains or urls.new:
            await run.reopen()
        if opts.json:
            print(json.dumps({"run": run.name, "domains_released": domains, "urls_released": urls.new}))
            return
        known = f", {urls.seen:,} already were" if urls.seen else ""
        print(f"run {run.name}: {domains:,} domains and {urls.new:,} trapped URLs released{known}")


def _choice(opts: argparse.Namespace) -> Choice:
    from crawlproj.frontier.parking import DOMAIN_REASONS, URL_REASONS, Choice

    if opts.limit < 1:
        raise BadArgument(f"--limit {opts.limit}: must be at least 1.")
    reasons = (*DOMAIN_REASONS, *URL_REASONS)
    if opts.reason and opts.reason not in reasons:
        raise BadArgument(f"Unknown reason {opts.reason!r}; use one of: {', '.join(reasons)}.")
    is_chosen = bool(opts.domain or opts.reason)
    if opts.release and not (is_chosen or opts.all):
        raise BadArgument("--release needs --domain D, --reason R, or --all.")
    if opts.all and not opts.release:
        raise BadArgument("--all is only for --release; for a longer list use --limit N.")
    if opts.all and is_chosen:
        raise BadArgument("--all cannot be combined with --domain or --reason.")
    return Choice(frozenset(_domain(name) for name in opts.domain), opts.reason)


def _domain(name: str) -> str:
    try:
        return domain_named(name)
    except BadUrl as exc:
        raise BadArgument(f"--domain {name!r} is not a domain; expected something like example.org.") from exc


def _record(shown: object, names: str) -> dict[str, object]:
    return {name: getattr(shown, name) for name in names.split()}


def _back(parked: ParkedDomain, now_ms: int) -> str:
    if parked.back_ms is None:
        return "never"
    # The partition's owner checks it, so nothing happens while no shard runs.
    return f"in {_duration(parked.back_ms - now_ms)}" if parked.back_ms > now_ms else "when shards run"


def _duration(ms: int) -> str:
    seconds = max(0, ms // 1000)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _print_table(lines: list[str], more: int) -> None:
    print("", *lines, sep="\n")
    if more > 0:
        print(f"... and {more:,} more; use --limit N")
