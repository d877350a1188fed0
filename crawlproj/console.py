"""What all commands share: options, errors printed as one line, and for those about a run the Redis client.

Nothing here imports Scrapy, which takes longer to load than most commands take to answer.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import errno
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from crawlproj.errors import EXIT_INTERRUPTED, EXIT_STORE, EXIT_USAGE, BadArgument, CannotStart, CrawlError

if TYPE_CHECKING:
    from crawlproj.config import Config
    from crawlproj.errors import Problem
    from crawlproj.redisio.client import RedisClient
    from crawlproj.runs import Run

#: The run of the spider `web` if none is named.
DEFAULT_RUN = "web"
#: A file or directory that is missing, or cannot be read or written.
_DISK_ERRORS = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EEXIST,
        errno.EISDIR,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
#: What shells expect of a process that got SIGPIPE: 128 + its number.
_EXIT_PIPE = 141
#: And one whose terminal was closed.
_EXIT_HANGUP = 129
#: How the names of our own settings begin.
_OUR_SETTINGS = ("CRAWL_", "PAGE_", "REDIS_")
#: What Scrapy's error about an unknown spider begins with.
_NO_SPIDER = "Spider not found: "
#: The headings of `crawlproj -h`.
GROUPS = ("crawl", "look", "operate", "develop")

#: The program a person has typed, `scrapy` or `crawlproj`. Global, as the command line is.
_program = "scrapy"


def name_program(name: str) -> None:
    """Use *name* in messages from now on."""
    global _program
    _program = name


def spoken(text: str) -> str:
    """Return *text* with the commands in it as a person would type them here."""
    return re.sub(r"\bscrapy (?=[a-z]+\b)", f"{_program} ", text)


class ConsoleCommand:
    """A command of ours. Subclasses define `run_it`, and for the help ``group``, ``summary``, ``examples``.

    Scrapy takes it for one of its own (`register_with_scrapy`); `crawlproj` runs it without Scrapy, unless it
    ``needs_scrapy``.
    """

    requires_project = False
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, object]] = {"LOG_ENABLED": False}
    needs_scrapy = False
    group = "develop"
    arguments = "[options]"
    summary = ""
    examples = ""
    takes_arguments = False
    exitcode = 0

    def __init__(self) -> None:
        #: Scrapy's settings; without Scrapy, a dict.
        self.settings: Any = {}

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def syntax(self) -> str:
        return self.arguments

    def short_desc(self) -> str:
        return self.summary

    def long_desc(self) -> str:
        return self.summary

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of all commands; the same as Scrapy's own."""
        # Scrapy would name itself.
        parser.usage = f"{_program} {self.name} {self.syntax()}"
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = "examples:\n" + spoken(self.examples)
        options = parser.add_argument_group("settings and logs")
        options.add_argument(
            "-s",
            "--set",
            action="append",
            default=[],
            type=_setting,
            metavar="NAME=VALUE",
            help="a setting (repeatable)",
        )
        options.add_argument(
            "-L", "--loglevel", metavar="LEVEL", help="lowest level to log: DEBUG, INFO, WARNING, ERROR"
        )
        options.add_argument("--logfile", metavar="FILE", help="log to FILE instead of stderr")
        options.add_argument("--nolog", action="store_true", help="log nothing")
        options.add_argument("--pidfile", metavar="FILE", help="write the process ID to FILE")
        options.add_argument("--profile", metavar="FILE", help="write cProfile statistics to FILE")
        options.add_argument("--pdb", action="store_true", help="start the debugger on an error")

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Called by Scrapy: put the options into its settings."""
        from scrapy.commands import ScrapyCommand

        from crawlproj.addon import wire

        # In a project with our add-on Scrapy applies it to crawls only, and the defaults would be Scrapy's.
        wire(self.settings)
        for pair in opts.set:
            self._check_pair(pair)
        ScrapyCommand.process_options(self, args, opts)  # type: ignore[arg-type]  # registered, not derived
        self.settings.setdict(given_settings(opts), priority="cmdline")

    def _check_pair(self, pair: str) -> None:
        """Refuse what Scrapy would refuse without saying why: half a dict."""
        from scrapy.exceptions import UsageError
        from scrapy.settings import BaseSettings

        from crawlproj.config import read_config

        name, _, value = pair.partition("=")
        try:
            BaseSettings(self.settings).set(name, value)
        except (ValueError, TypeError) as exc:
            problems = read_config({name: value})[1]
            wrong = " ".join(map(str, problems)) or f"{name}={value!r} is not a JSON object: {exc}"
            raise UsageError(wrong, print_help=False) from exc
        # Ours are checked with their values; Scrapy's and those of other packages nobody checks.
        known = [] if name in self.settings or name.startswith(_OUR_SETTINGS) else list(self.settings)
        if close := get_close_matches(name, known, n=1, cutoff=0.85):
            self.print_error(f"Unknown setting {name}. Did you mean {close[0]}?")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        unknown = [arg for arg in args if (arg.startswith("-") and arg != "-") or not self.takes_arguments]
        if unknown:
            self.print_error(f"unknown argument {unknown[0]!r}; see: scrapy {self.name} -h")
            self.exitcode = EXIT_USAGE
        else:
            self.exitcode = self.guarded(lambda: self.run_it(args, opts))

    def guarded(self, work: Callable[[], int]) -> int:
        """Do *work*; returns its exit code, or prints the error that ended it and returns its exit code."""
        try:
            code = work()
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output, such as `head`, has closed it. Discard the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _EXIT_PIPE
        except CannotStart as exc:
            self._print_problems(exc.problems)
            return exc.exit_code
        except CrawlError as exc:
            self.print_error(str(exc))
            return exc.exit_code
        except OSError as exc:
            if exc.errno == errno.EIO and exc.filename is None:
                # The terminal was closed.
                return _EXIT_HANGUP
            if exc.errno not in _DISK_ERRORS or exc.filename is None:
                raise
            self.print_error(f"Cannot use {str(exc.filename)!r}: {exc.strerror}.")
            return EXIT_STORE
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        return code

    def _print_problems(self, problems: Sequence[Problem]) -> None:
        if len(problems) == 1:
            self.print_error(str(problems[0]))
            return
        self.print_error(f"{len(problems)} problems; nothing was started.")
        for problem in problems:
            print(spoken(f"- {problem}"), file=sys.stderr)

    def print_error(self, text: str) -> None:
        """Print an error, with the name of the command."""
        print(f"{_program} {self.name}: {spoken(text)}", file=sys.stderr)

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        """Run the command; returns the exit code."""
        raise NotImplementedError


class RunCommand(ConsoleCommand):
    """A command about a run. Subclasses define `work`."""

    requires_project = True
    group = "operate"
    #: Whether it fails when there is no crawl, instead of starting an embedded Redis.
    requires_crawl = False
    run_help = f"the run (default: {DEFAULT_RUN})"
    #: Whether it reads several data directories at once.
    several_data = False

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--run", default="", metavar="NAME", help=self.run_help)
        if self.several_data:
            parser.add_argument(
                "--data",
                action="append",
                default=[],
                metavar="DIR",
                help="a data directory (CRAWL_DATA) or store; repeat it for those of other machines",
            )
        else:
            parser.add_argument("--data", default="", metavar="DIR", help="the data directory (CRAWL_DATA)")

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        return asyncio.run(self.work(args, opts)) or 0

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        """Run the command; returns the exit code, None for success."""
        raise NotImplementedError

    def config(self) -> Config:
        config, problems = self._read_config()
        if problems:
            raise CannotStart(problems)
        return config

    def _read_config(self) -> tuple[Config, list[Problem]]:
        from crawlproj.config import read_config

        return read_config(self.settings if isinstance(self.settings, dict) else self.settings.copy_to_dict())

    def run_name(self, opts: argparse.Namespace) -> str:
        from crawlproj.redisio.keys import check_run_name

        # Other settings may be wrong: they are reported together, later.
        return check_run_name(opts.run or self._read_config()[0].run or DEFAULT_RUN)

    def has_crawl(self) -> bool:
        """Whether there is a Redis to ask without starting an empty one."""
        config = self.config()
        return config.redis_url is not None or (config.data / "redis").is_dir()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RedisClient]:
        from crawlproj.redisio.client import RedisClient

        config = self.config()
        if self.requires_crawl and not self.has_crawl():
            raise BadArgument(f"There is no crawl in {str(config.data)!r}; name its directory with --data.")
        client = await RedisClient.connect(config)
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def found_run(self, opts: argparse.Namespace) -> AsyncIterator[Run]:
        """Open the run that exists under the name in *opts*."""
        from crawlproj.runs import Run

        async with self.client() as client:
            yield await Run.find(client, self.run_name(opts))


def own_commands() -> list[str]:
    return _modules_in("crawlproj")


def scrapy_commands() -> list[str]:
    return _modules_in("scrapy")


def _modules_in(package: str) -> list[str]:
    """Return the commands of *package*, without importing any."""
    spec = find_spec(package)
    folders = spec.submodule_search_locations or [] if spec else []
    return [module.name for module in iter_modules([str(Path(folder) / "commands") for folder in folders])]


def load_command(name: str) -> ConsoleCommand:
    command: ConsoleCommand = import_module(f"crawlproj.commands.{name}").Command()
    return command


def parser_of(command: ConsoleCommand) -> argparse.ArgumentParser:
    """Return the parser of `crawlproj NAME`."""
    parser = argparse.ArgumentParser(
        prog=f"crawlproj {command.name}",
        usage=f"crawlproj {command.name} {command.syntax()}",
        description=command.long_desc(),
    )
    command.add_options(parser)
    return parser


def given_settings(opts: argparse.Namespace) -> dict[str, str]:
    """Return the settings that *opts* stand for."""
    settings = dict(pair.split("=", 1) for pair in opts.set)
    if data := getattr(opts, "data", ""):
        # Some commands take several, also addresses of stores; the first has what is not a page.
        several = [data] if isinstance(data, str) else [one for one in data if "://" not in one]
        settings |= {"CRAWL_DATA": several[0]} if several else {}
    return settings


def register_with_scrapy() -> None:
    """Make Scrapy accept our commands, which it loads by COMMANDS_MODULE."""
    from scrapy.commands import ScrapyCommand

    ScrapyCommand.register(ConsoleCommand)


def answer_briefly() -> None:
    """From now on, end with one line where a person can mend it, and quietly on Ctrl-C: no traceback."""
    sys.excepthook = _print_briefly


def _print_briefly(kind: type[BaseException], error: BaseException, trace: TracebackType | None, /) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    words, code = _brief(error, trace)
    if not words:
        sys.__excepthook__(kind, error, trace)
        return
    print(f"{_program}: {spoken(words)}", file=sys.stderr)
    # Python itself would exit with 1. Registered last, so it runs first.
    atexit.register(_leave, code)


def _brief(error: BaseException, trace: TracebackType | None) -> tuple[str, int]:
    """Return what a person should read of an error that Scrapy did not catch, and the exit code."""
    missing = str(error.args[0]) if isinstance(error, KeyError) and error.args else ""
    if missing.startswith(_NO_SPIDER):
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        # The loader itself raised it, and knows its spiders.
        loader: Any = trace.tb_frame.f_locals.get("self") if trace else None
        known = loader.list() if hasattr(loader, "list") else []
        return no_spider(missing.removeprefix(_NO_SPIDER), known), EXIT_USAGE
    if isinstance(error, CrawlError):
        return str(error), error.exit_code
    # A seam: the guard is of the download room, which this module must not load for every command.
    guard = sys.modules.get("crawlproj.download.guard")
    if guard is not None and isinstance(error, guard.AddressRefusedError | guard.NoContactError):
        return str(error), EXIT_USAGE
    return "", 0


def no_spider(name: str, known: Sequence[str]) -> str:
    """Return that there is no spider *name*, the one that was probably meant, and all that are *known*."""
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no spider {name!r}; there are: {', '.join(sorted(known)) or 'none'}.{hint}"


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _setting(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text} has no value; write -s NAME=VALUE")
    return text


if "scrapy.commands" in sys.modules:
    register_with_scrapy()
    answer_briefly()
