"""The wheel, installed where nothing else of this repository is: the command `crawlproj` and the library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
#: What `pip install .` reads besides the package.
SOURCES = ("pyproject.toml", "setup.py", "requirements.in", "README.md")
ALLOWED = ("-s", "CRAWL_ALLOW_ADDRESSES=127.0.0.0/8", "-s", "DOWNLOAD_DELAY=0.1")
READS_PAGES = """
from pathlib import Path
import crawlproj
from crawlproj.storage import read_pages
print(Path(crawlproj.__file__).parents[1])
print(sum(1 for page in read_pages("data/runs/simweb/pages")))
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel."""

    folder: Path

    def run(self, cwd: Path, *typed: str, code: int = 0) -> str:
        """Run what a person types in *cwd*; returns what it prints."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [self.folder / "bin" / typed[0], *typed[1:]],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, in an environment that has the packages of this one but not its project."""
    copy, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("environment")
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(PROJECT / "crawlproj", copy / "crawlproj", ignore=ignored)
    for name in SOURCES:
        shutil.copy(PROJECT / name, copy)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(copy / "dist"), str(copy)]
    subprocess.run(build, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [wheel] = (copy / "dist").glob("*.whl")
    python = folder / "bin" / "python"
    install = ["--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "shared.pth").write_text(sysconfig.get_path("purelib"))
    return Installed(folder)


def test_a_crawl_in_an_empty_directory_needs_nothing_but_the_wheel(
    installed: Installed, tmp_path: Path
) -> None:
    # Named like a module of Python's.
    (tmp_path / "queue.py").write_text("raise ImportError(__file__)\n")

    crawl = ("run", "--simweb", "1", "--max-pages", "3", "--shards", "1", "--json")
    result = json.loads(installed.run(tmp_path, "crawlproj", *crawl))

    package, pages = installed.run(tmp_path, "python", "-P", "-c", READS_PAGES).split()
    assert Path(package).is_relative_to(installed.folder)
    assert int(pages) == result["pages_stored"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"data", "queue.py"}
    assert installed.run(tmp_path, "crawlproj", "runs").splitlines()[1].startswith("simweb  stopped")


def test_a_project_of_ones_own_crawls_with_our_scheduler(installed: Installed, tmp_path: Path) -> None:
    made = installed.run(tmp_path, "crawlproj", "init", "news")
    assert "cd news && crawlproj run https://example.org/ -s CRAWL_CONTACT=you@example.org" in made
    project = tmp_path / "news"

    with SimwebProcess(WorldSpec.calm(domains=1, pages_per_domain=2), tmp_path) as simweb:
        [seed] = simweb.seeds()
        crawl = ("crawl", "titles", "-a", f"url={seed}", "-O", "titles.jsonl", *ALLOWED)
        installed.run(project, "python", "-m", "scrapy", *crawl)
        installed.run(project, "crawlproj", "run", seed, "--shards", "1", "--max-pages", "1", *ALLOWED)

    [item] = map(json.loads, (project / "titles.jsonl").read_text().splitlines())
    assert item["url"] == seed
    assert item["title"]
    assert installed.run(project, "crawlproj", "list").split() == ["parser", "titles", "web"]
    runs = [line.split()[:2] for line in installed.run(project, "crawlproj", "runs").splitlines()[1:]]
    assert runs == [["titles", "finished"], ["web", "stopped"]]


def test_a_directory_that_has_such_files_is_left_alone(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = mine\n")

    installed.run(tmp_path, "crawlproj", "init", ".", code=2)

    assert [path.name for path in tmp_path.iterdir()] == ["scrapy.cfg"]
