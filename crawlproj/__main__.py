"""The command ``crawlproj``, also as ``python -m crawlproj``."""

from __future__ import annotations

import sys

#: What shells expect of a process that got SIGINT: 128 + its number.
_EXIT_INTERRUPTED = 130


def run() -> int:
    """Run the command that was typed; returns its exit code, unless Scrapy exits with it."""
    try:
        # Not at module level: Ctrl-C meanwhile must be no traceback, either.
        from crawlproj.commandline import main

        return main()
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
