"""Options and body of ``scrapy simweb`` and ``python -m crawlproj.simweb``."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawlproj.errors import BadArgument
from crawlproj.simweb.graph import World
from crawlproj.simweb.server import serve
from crawlproj.simweb.spec import WORLD_ONLY, WorldSpec, check_field

EXAMPLES = """\
examples:
  scrapy simweb                                            20 domains on a free port, until Ctrl-C
  scrapy simweb --domains 200 --pages 30 --seeds-out seeds.txt --log access.jsonl
  scrapy simweb --world calm --port 8900                   no faults, no rules, a fixed port
  scrapy simweb --with error_500_share=0.2 --with trap_share=0.1
  scrapy simweb --naming name --json                       hosts like www.d00042.test; one JSON line
"""
_WORLDS: dict[str, Callable[[], WorldSpec]] = {
    "default": WorldSpec,
    "calm": WorldSpec.calm,
    "wild": WorldSpec.wild,
    "rough": WorldSpec.rough,
}
_YES_OR_NO = {"true": True, "false": False}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--domains", type=int, help="number of domains, 1 to 100,000 (default 20)")
    parser.add_argument("--pages", type=int, metavar="PAGES", dest="pages_per_domain",
                        help="mean number of pages of a domain (default 50)")  # fmt: skip
    parser.add_argument("--seed", type=int, help="random seed: the same seed gives the same web (default 1)")
    parser.add_argument("--naming", help="'ip': hosts are 127.a.b.c (default); 'name': hosts are dNNNNN.test")
    parser.add_argument("--port", type=int, help="port to listen on (default 0: a free one)")
    parser.add_argument("--world", choices=_WORLDS, default="default", help="preset of properties")
    parser.add_argument("--with", action="append", default=[], metavar="NAME=VALUE", dest="changes",
                        help="set a property of the world, such as trap_share=0.1")  # fmt: skip
    parser.add_argument("--spec", type=Path, help="a world saved as JSON; the options above change it")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), dest="access_log",
                        help="one JSON line per request")  # fmt: skip
    parser.add_argument("--seeds-out", type=Path, metavar="FILE", help="write a seeds file, one URL per line")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="how many URLs to write to --seeds-out (default: a few)"
    )
    parser.add_argument(
        "--with-parent", action="store_true", help="end when the process that started it does"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line when ready")


def run(options: argparse.Namespace) -> None:
    """Serve until a signal; raises BadArgument for what the options get wrong."""
    spec = spec_from(options)

    def ready(world: World) -> None:
        seeds = world.seeds(options.seeds)
        facts: dict[str, int | str] = {
            "port": world.spec.port,
            "pid": os.getpid(),
            "domains": world.spec.domains,
            "seeds": len(seeds),
        }
        if options.seeds_out:
            options.seeds_out.write_text("".join(f"{url}\n" for url in seeds))
            facts["seeds_file"] = str(options.seeds_out)
        sentence = (
            f"simweb serves {world.spec.domains} domains on port {world.spec.port}; start at {seeds[0]}"
        )
        sys.stdout.write((json.dumps(facts) if options.json else sentence) + "\n")
        sys.stdout.flush()

    try:
        import uvloop
    except ImportError:
        loop_factory = None
    else:
        loop_factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve(spec, options.access_log, ready, with_parent=options.with_parent))
    except OSError as exc:
        raise BadArgument(
            f"simweb cannot serve on port {spec.port}, logging to {options.access_log}: {exc}."
        ) from exc


def spec_from(options: argparse.Namespace) -> WorldSpec:
    spec = _WORLDS[options.world]()
    if options.spec:
        try:
            spec = WorldSpec.from_json(options.spec.read_text())
        except (OSError, ValueError) as exc:
            raise BadArgument(f"--spec {options.spec} cannot be read: {exc}.") from exc
    names = ("domains", "pages_per_domain", "seed", "naming", "port")
    changes: dict[str, Any] = {name: value for name in names if (value := getattr(options, name)) is not None}
    for change in options.changes:
        name, equals, value = change.partition("=")
        check_field(name)
        if not equals or name in WORLD_ONLY:
            raise BadArgument(
                f"--with {change} is not NAME=VALUE of one property; for example error_500_share=0.1."
            )
        kind = type(getattr(spec, name))
        try:
            changes[name] = _YES_OR_NO[value.lower()] if kind is bool else kind(value)
        except (KeyError, ValueError):
            wanted = "true or false" if kind is bool else "a number"
            raise BadArgument(f"--with {change}: {value!r} is not {wanted}.") from None
    return dataclasses.replace(spec, **changes)
