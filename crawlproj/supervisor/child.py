"""A command with its settings in the environment: ``ps`` shows the command line to everybody."""

from __future__ import annotations

import json
import os
import sys
from runpy import run_module

#: The environment variable with the settings: a JSON list of ``--set=NAME=VALUE``.
SETTINGS = "CRAWL_CHILD_SETTINGS"

if __name__ == "__main__":
    # Removed, so that its own children do not inherit it.
    sys.argv += json.loads(os.environ.pop(SETTINGS))
    # By its name: the supervisor imports no worker.
    run_module("crawlproj.project", run_name="__main__", alter_sys=True)
