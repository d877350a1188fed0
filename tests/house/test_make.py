"""`make crawl` gives to `scrapy run` what a person wrote, whatever it means to a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make_crawl(tmp_path: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """Run `make crawl` with a program that prints its arguments in place of `scrapy`."""
    program = tmp_path / "scrapy"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)
    instead = [f"BIN={tmp_path}", "CRAWL_READY=", "READER="]
    command = ["make", "-s", "-C", str(ROOT), "crawl", *instead, *variables]
    # These tests may have been started by make, with variables of their own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_urls_and_contact_reach_the_crawl_as_they_were_written(tmp_path: Path) -> None:
    urls = ["https://a.example/?q=1&page=2;x", "https://b.example/$(whoami)/O'Brien"]
    written = " ".join(urls).replace("$", "$$")

    done = make_crawl(tmp_path, f"SEEDS={written} seeds.txt", "CONTACT=https://c.example/?a&b", "RUN=news")

    arguments = json.loads(done.stdout)
    assert arguments[:4] == ["run", *urls, "seeds.txt"]
    assert "CRAWL_CONTACT=https://c.example/?a&b" in arguments
    assert arguments[arguments.index("--run") + 1] == "news"


def test_urls_in_quotes_of_their_own_lose_them(tmp_path: Path) -> None:
    done = make_crawl(tmp_path, "SEEDS='https://a.example/?q=1&page=2'")

    assert json.loads(done.stdout)[1] == "https://a.example/?q=1&page=2"


@pytest.mark.parametrize("name", ["SEED", "seeds", "URL", "contact", "SHARD", "MAX_PAGES"])
def test_a_misspelt_variable_is_refused(tmp_path: Path, name: str) -> None:
    done = make_crawl(tmp_path, f"{name}=seeds.txt")

    assert done.returncode == 2
    assert f"There is no {name}=...; there are: SEEDS CONTACT SHARDS " in done.stderr
