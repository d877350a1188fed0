"""``python -m crawlproj``, the same as the command ``crawlproj``."""

from __future__ import annotations

import sys

from crawlproj.commandline import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
