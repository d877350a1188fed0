"""Importing does nothing; imports keep to the contracts; commands keep off Scrapy's names."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import scrapy.commands

ROOT = Path(__file__).parents[2]
#: Beside the interpreter, wherever the environment is.
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

WATCH = """
import importlib, json, os, sys

deeds, current, WRITING = [], "", os.O_WRONLY | os.O_RDWR | os.O_CREAT

def watch(event, arguments):
    if event in ("socket.__new__", "socket.connect", "socket.bind", "subprocess.Popen", "os.fork", "os.mkdir",
                 "os.remove", "os.rename", "os.putenv", "signal.signal"):
        deeds.append(f"{current}: {event}")
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        deeds.append(f"{current}: writes {arguments[0]}")

sys.addaudithook(watch)
for current in sys.argv[1:]:
    importlib.import_module(current)
if "twisted.internet.reactor" in sys.modules:
    deeds.append("the reactor was installed")
print(json.dumps(deeds))
"""


def modules() -> list[str]:
    found = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "crawlproj").rglob("*.py"))
    return sorted(
        ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for parts in (path.parts for path in found)
        if parts[-1] != "__main__"
    )


def deeds_of_importing(names: list[str], directory: Path) -> list[str]:
    # -B: bytecode files would be the only writes allowed, so there are none.
    finished = subprocess.run(
        [sys.executable, "-B", "-c", WATCH, *names],
        cwd=directory,
        env={"PYTHONPATH": f"{ROOT}:{directory}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    deeds: list[str] = json.loads(finished.stdout.splitlines()[-1])
    return deeds


def test_importing_any_module_opens_no_socket_and_writes_no_file(tmp_path: Path) -> None:
    assert deeds_of_importing(modules(), tmp_path) == []


def test_the_watch_would_see_a_module_that_acts_on_import(tmp_path: Path) -> None:
    (tmp_path / "culprit.py").write_text(
        "import socket\nsocket.socket().close()\nopen('made', 'w').close()\n"
    )

    deeds = deeds_of_importing(["culprit"], tmp_path)

    assert deeds == ["culprit: socket.__new__", "culprit: writes made"]


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=directory, capture_output=True, text=True, check=False
    )


def test_imports_keep_to_the_contracts() -> None:
    finished = lint(ROOT)

    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("model/urls.py", "import crawlproj.config", "Imports point downward"),
        ("pages/queue.py", "import crawlproj.storage", "Imports point downward"),
        ("planted.py", "import crawlproj.errors", "Imports point downward"),
        ("pages/queue.py", "import redis", "Only redisio imports redis"),
        ("pages/queue.py", "import scrapy", "Scrapy and Twisted stay at the edge"),
        ("simweb/server.py", "from twisted.internet import defer", "Scrapy and Twisted stay at the edge"),
        ("politeness/pacing.py", "import asyncio", "Pure rooms do no input or output"),
    ],
)
def test_the_contracts_notice_a_wrong_import(tmp_path: Path, path: str, line: str, contract: str) -> None:
    shutil.copytree(ROOT / "crawlproj", tmp_path / "crawlproj", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    with (tmp_path / "crawlproj" / path).open("a", encoding="utf-8") as module:
        module.write(f"\n{line}\n")

    finished = lint(tmp_path)

    assert re.search(rf"{contract}.* BROKEN", finished.stdout), finished.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_from_the_package_exists(path: Path) -> None:
    """Benchmarks are run rarely, so a name that moved would be missed late. Settings name some as text."""
    text = path.read_text("utf-8")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    ours = [(node.module, name.name) for node in imports for name in node.names if node.module]
    ours += re.findall(r'"(crawlproj(?:\.[a-z_]+)+)\.([A-Z]\w+)"', text)

    for module, name in ours:
        if module.partition(".")[0] == "crawlproj" and not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


def test_no_command_takes_the_name_of_one_of_scrapys() -> None:
    def names(folder: Path) -> set[str]:
        return {path.stem for path in folder.glob("*.py")} - {"__init__"}

    theirs = names(Path(scrapy.commands.__file__).parent)
    ours = names(ROOT / "crawlproj/commands")

    assert {"crawl", "parse", "shell"} <= theirs
    assert ours & theirs == set()
