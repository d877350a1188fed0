"""``scrapy serve``: the jobs API and the web page."""

from __future__ import annotations

import argparse
import asyncio
import logging

from crawlproj.console import RunCommand, given_settings, spoken
from crawlproj.errors import BadArgument, CannotStart


class Command(RunCommand):
    # Refused, with what to do instead.
    run_help = argparse.SUPPRESS
    summary = "Serve the jobs API and the web page"
    examples = """\
  scrapy serve                                          at http://127.0.0.1:8080/
  scrapy serve -s CRAWL_CONTACT=you@example.org         for public sites: every job uses it
  scrapy serve --port 9000 --data news                  another port, another data directory
  scrapy serve --host 0.0.0.0 -s CRAWL_API_TOKENS_FILE=tokens.txt   for other machines: lines `write TOKEN`

Ctrl-C ends the server; jobs continue, and the next server shows them."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
        parser.add_argument("--port", default="8080", help="the port (default: 8080; 0: any that is free)")

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.api.access import Tokens
        from crawlproj.api.app import make_app
        from crawlproj.api.server import check_host, listen, serve
        from crawlproj.checks import disk_problems, redis_problem
        from crawlproj.observe import logs

        if opts.run:
            raise BadArgument("A server is for all runs; leave out --run.")
        if not opts.port.isdigit() or int(opts.port) > 65_535:
            raise BadArgument(f"--port {opts.port}: must be a number up to 65535.")
        config = self.config()
        check_host(opts.host, has_tokens=bool(Tokens.of(config)))
        problems = [*filter(None, [asyncio.run(redis_problem(config))]), *disk_problems(config, "")]
        if problems:
            raise CannotStart(problems)
        settings = self.settings if isinstance(self.settings, dict) else self.settings.copy_to_dict()
        given = {name: value for name, value in given_settings(opts).items() if name != "CRAWL_DATA"}
        app = make_app(config, host=opts.host, settings=settings, given=given)
        listener = listen(opts.host, int(opts.port))
        shown = f"[{opts.host}]" if ":" in opts.host else opts.host
        address = f"http://{shown}:{listener.getsockname()[1]}/"
        logs.name_process("", "server", "")
        logging.getLogger().addHandler(logs.make_handler(config.log))
        logging.getLogger().setLevel(logging.INFO)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        serve(
            app,
            listener,
            lambda: print(spoken(f"serving {address} (Ctrl-C ends the server, not its jobs)"), flush=True),
        )
        return 0
