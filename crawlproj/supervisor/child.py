"""A command with its settings in the environment: ``ps`` shows the command line to everybody."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from runpy import run_module

#: The environment variable with the settings: a JSON list of ``--set=NAME=VALUE``.
SETTINGS = "CRAWL_CHILD_SETTINGS"


def command(module: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return a command line that runs *module* with *arguments*, and what its environment has besides ours.

    Settings among the arguments, ``--set=NAME=VALUE``, are in the environment.
    """
    settings = [argument for argument in arguments if argument.startswith("--set=")]
    shown = [argument for argument in arguments if argument not in settings]
    # The package need not be installed.
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2])]))
    # -P: a file where a person works may have the name of a module.
    words = [sys.executable, "-P", "-m", __name__, module, *shown]
    return words, {SETTINGS: json.dumps(settings), "PYTHONPATH": path}


if __name__ == "__main__":
    # Removed, so that its own children do not inherit it.
    sys.argv += json.loads(os.environ.pop(SETTINGS))
    # By its name: the supervisor imports no worker.
    run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
