"""The command ``crawlproj``: ours are run without Scrapy where they can be, all others are Scrapy's.

Works in any directory; in one of a Scrapy project, with its settings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches

from crawlproj import __version__
from crawlproj.console import (
    GROUPS,
    ConsoleCommand,
    answer_briefly,
    given_settings,
    load_command,
    name_program,
    own_commands,
    parser_of,
    register_with_scrapy,
    scrapy_commands,
)
from crawlproj.errors import EXIT_OK, EXIT_USAGE, BadSetting
from crawlproj.project import execute, read_settings

_HEAD = """\
crawlproj {version}: a polite, sharded, resumable web crawler

  crawlproj run https://example.org/ -s CRAWL_CONTACT=you@example.org
"""
_FOOT = """\
Scrapy's own ({theirs}) work as `crawlproj NAME`, too.
crawlproj NAME -h explains a command. Completion: crawlproj completion -h"""
#: Options that only Scrapy carries out.
_SCRAPYS = ("logfile", "loglevel", "pidfile", "profile", "pdb")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that *words* name; returns its exit code, unless Scrapy exits with it."""
    words = list(sys.argv[1:] if words is None else words)
    name_program("crawlproj")
    answer_briefly()
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return EXIT_OK
    if words[0] in ("-V", "--version"):
        print(f"crawlproj {__version__}")
        return EXIT_OK
    if words[0] in own_commands():
        command = load_command(words[0])
        code = None if command.needs_scrapy else _run_directly(command, words[1:])
        if code is not None:
            return code
    elif words[0] not in scrapy_commands():
        return _refuse(words[0])
    register_with_scrapy()
    return execute(words)


def overview() -> str:
    """Return the help: all commands, by group."""
    commands = [load_command(name) for name in own_commands()]
    lines = [_HEAD.format(version=__version__)]
    for group in GROUPS:
        lines.append(f"{group}:")
        lines += (f"  {one.name:<12} {one.summary}" for one in commands if one.group == group)
        lines.append("")
    return "\n".join(lines) + "\n" + _FOOT.format(theirs=", ".join(scrapy_commands()))


def _run_directly(command: ConsoleCommand, words: Sequence[str]) -> int | None:
    """Run *command* without Scrapy; returns its exit code, None if an option needs Scrapy."""
    opts, args = parser_of(command).parse_known_args(words)
    if any(getattr(opts, name) for name in _SCRAPYS):
        return None
    try:
        command.settings = read_settings() | given_settings(opts)
    except BadSetting as exc:
        command.print_error(str(exc))
        return exc.exit_code
    command.run(args, opts)
    return command.exitcode


def _refuse(name: str) -> int:
    close = get_close_matches(name, [*own_commands(), *scrapy_commands()], n=1)
    hint = f"Did you mean {close[0]}?" if close else "crawlproj -h lists all commands."
    what = "is an option; the command comes first" if name.startswith("-") else "is not a command"
    print(f"crawlproj: {name!r} {what}. {hint}", file=sys.stderr)
    return EXIT_USAGE
