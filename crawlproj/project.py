"""The Scrapy project of the current directory; where there is none, this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from crawlproj import settings as own_settings
from crawlproj.errors import BadSetting

#: Scrapy's name for the environment variable with the settings module; child processes inherit it.
_VARIABLE = "SCRAPY_SETTINGS_MODULE"


def find_project() -> str:
    """Return the name of the settings module, as Scrapy would find it; it can be imported from now on.

    Unlike Scrapy, without loading it, and with our own settings where there is no project.
    """
    here = Path.cwd()
    file = next((path for folder in (here, *here.parents) if (path := folder / "scrapy.cfg").is_file()), None)
    if file is not None:
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
        os.environ.setdefault(_VARIABLE, _module_in(file))
    return os.environ.setdefault(_VARIABLE, own_settings.__name__)


def read_settings() -> dict[str, object]:
    """Return the settings of the project, and ours where it has none."""
    name = find_project()
    try:
        module = import_module(name)
    except ImportError as exc:
        raise BadSetting(
            f"The settings module {name!r}, named by scrapy.cfg or {_VARIABLE}, cannot be imported: {exc}."
        ) from exc
    return _values_of(own_settings) | _values_of(module)


def execute(words: Sequence[str]) -> NoReturn:
    """Run a command of Scrapy's, or one of ours that needs it, with our settings below the project's."""
    # Loaded late: this module serves commands that do without.
    from scrapy.cmdline import execute as execute_by_scrapy
    from scrapy.utils.project import get_project_settings

    from crawlproj.addon import wire

    find_project()
    settings = get_project_settings()
    wire(settings)
    execute_by_scrapy(["scrapy", *words], settings)
    raise AssertionError("Scrapy has not exited")


def _module_in(file: Path) -> str:
    parser = ConfigParser()
    try:
        parser.read(file)
        return parser.get("settings", os.environ.get("SCRAPY_PROJECT", "default"), fallback="") or (
            own_settings.__name__
        )
    except ConfigError as exc:
        raise BadSetting(f"Cannot read {str(file)!r}: {exc.message}.") from exc


def _values_of(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name.isupper()}


if __name__ == "__main__":
    execute(sys.argv[1:])
