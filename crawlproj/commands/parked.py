"""``scrapy parked``: domains and URLs that were set aside."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from crawlproj.frontier.parking import Choice, ParkedDomain, Parking, TrappedUrl
    from crawlproj.runs import Run


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy parked                                   domains that are parked, URLs taken for traps
  scrapy parked --domain example.org --limit 500  those of one domain
  scrapy parked --release --domain example.org    have it go on at once, and its URLs fetched
  scrapy parked --release --reason failures       every domain that failed too often
  scrapy parked --release --all                   everything

What is let go on is fetched by the shards that run, or by those started next. Shards that run go on taking
other URLs of the same shape for traps; those let go on pass. Once started again, they count anew."""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "List what was set aside: domains and traps; let it go on"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--domain", action="append", default=[], metavar="D", help="of this domain; may be repeated"
        )
        parser.add_argument("--reason", default="", metavar="R", help="set aside for this reason")
        parser.add_argument(
            "--limit", type=int, default=50, metavar="N", help="list so many of each kind (default 50)"
        )
        parser.add_argument("--release", action="store_true", help="let what is chosen go on")
        parser.add_argument("--all", action="store_true", help="with --release: everything")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.frontier.parking import Parking
        from crawlproj.runs import Run

        choice = _choice(opts)
        async with self.door() as door:
            run = await Run.find(door, self.run_name(opts))
            parking = Parking(door, run.name, run.partitions)
            if opts.release:
                await self._release(run, parking, choice, opts)
            else:
                await self._list(run, parking, choice, opts)
        return None

    async def _list(self, run: Run, parking: Parking, choice: Choice, opts: argparse.Namespace) -> None:
        import json

        domains, domain_count = await parking.list_domains(choice, opts.limit)
        urls, url_count = await parking.list_urls(choice, opts.limit)
        if opts.json:
            found = {
                "run": run.name,
                "domains_total": domain_count,
                "domains": [_domain_record(parked) for parked in domains],
                "urls_total": url_count,
                "urls": [_url_record(trapped) for trapped in urls],
            }
            print(json.dumps(found))
            return
        # The times are by the clock of Redis.
        seconds, micros = await run.door.command("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        print(f"run {run.name}: {domain_count:,} domains parked, {url_count:,} URLs taken for traps")
        if domains:
            print()
            _print_table(("domain", "why", ">URLs", ">failures", "comes back"), _domain_rows(domains, now_ms))
            _print_more(domain_count - len(domains))
        if urls:
            print()
            _print_table(("why", "when", "URL"), _url_rows(urls, now_ms))
            _print_more(url_count - len(urls))

    async def _release(self, run: Run, parking: Parking, choice: Choice, opts: argparse.Namespace) -> None:
        import json

        # The URLs first: those of a parked domain wait with it, and go on together.
        urls = await parking.release_urls(choice)
        domains = await parking.release_domains(choice)
        if domains or urls.new:
            await run.reopen()
        if opts.json:
            print(json.dumps({"run": run.name, "domains_released": domains, "urls_released": urls.new}))
            return
        known = f", {urls.seen:,} others were before" if urls.seen else ""
        print(
            f"run {run.name}: {domains:,} domains go on, {urls.new:,} URLs taken for traps wait again{known}"
        )


def _choice(opts: argparse.Namespace) -> Choice:
    from crawlproj.errors import BadArgument
    from crawlproj.frontier.parking import DOMAIN_REASONS, URL_REASONS, Choice

    if opts.limit < 1:
        raise BadArgument(f"--limit {opts.limit}: at least 1 is needed.")
    reasons = (*DOMAIN_REASONS, *URL_REASONS)
    if opts.reason and opts.reason not in reasons:
        raise BadArgument(f"Nothing is set aside for {opts.reason!r}; the reasons are: {', '.join(reasons)}.")
    is_chosen = bool(opts.domain or opts.reason)
    if opts.release and not (is_chosen or opts.all):
        raise BadArgument("Say what --release lets go on: --domain D, --reason R, or --all.")
    if opts.all and not opts.release:
        raise BadArgument("--all goes with --release; the list is made longer with --limit N.")
    if opts.all and is_chosen:
        raise BadArgument("--all is everything; leave it out to choose by --domain or --reason.")
    return Choice(frozenset(_domain(name) for name in opts.domain), opts.reason)


def _domain(name: str) -> str:
    """Return the domain a person means, who may have copied a host or a URL."""
    from crawlproj.errors import BadArgument, BadUrl
    from crawlproj.model.urls import canonicalise, domain_of

    try:
        return domain_of(canonicalise(name if "://" in name else f"http://{name}/"))
    except BadUrl as exc:
        raise BadArgument(f"--domain {name!r} is not a domain; expected something like example.org.") from exc


def _domain_record(parked: ParkedDomain) -> dict[str, Any]:
    return {
        "domain": parked.domain,
        "reason": parked.reason,
        "urls": parked.urls,
        "failures": parked.failures,
        "back_ms": parked.back_ms,
    }


def _url_record(trapped: TrappedUrl) -> dict[str, Any]:
    return {
        "url": trapped.url,
        "domain": trapped.domain,
        "reason": trapped.reason,
        "depth": trapped.depth,
        "trapped_ms": trapped.trapped_ms,
    }


def _domain_rows(domains: list[ParkedDomain], now_ms: int) -> list[tuple[str, ...]]:
    return [
        (parked.domain, parked.reason, f"{parked.urls:,}", f"{parked.failures:,}", _back(parked, now_ms))
        for parked in domains
    ]


def _url_rows(urls: list[TrappedUrl], now_ms: int) -> list[tuple[str, ...]]:
    return [
        (trapped.reason, f"{_duration(now_ms - trapped.trapped_ms)} ago", trapped.url) for trapped in urls
    ]


def _back(parked: ParkedDomain, now_ms: int) -> str:
    if parked.back_ms is None:
        return "never"
    # By itself only while shards run: its partition's owner has to look.
    return f"in {_duration(parked.back_ms - now_ms)}" if parked.back_ms > now_ms else "when shards run"


def _duration(ms: int) -> str:
    seconds = max(0, ms // 1000)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print *rows* in columns; those whose head begins with '>' end at the right."""
    names = [name.removeprefix(">") for name in head]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        cells = (
            cell.rjust(width) if name.startswith(">") else cell.ljust(width)
            for name, cell, width in zip(head, row, widths, strict=True)
        )
        print("  ".join(cells).rstrip())


def _print_more(count: int) -> None:
    if count > 0:
        print(f"... and {count:,} more; --limit N shows more of them")
