"""The examples of docs/api.md, run as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.server import site_in
from tests.patience import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
pytestmark = pytest.mark.e2e


def blocks(language: str) -> str:
    return "\n".join(
        re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )


def test_the_examples_work_as_written(tmp_path: Path) -> None:
    with (
        SimwebProcess(WorldSpec(domains=3, pages_per_domain=10), tmp_path / "simweb") as simweb,
        site_in(tmp_path) as site,
    ):
        server = site.serve()
        environment = os.environ | {
            "API": f"http://{server.host}:{server.port}",
            "SEED": simweb.seeds()[0],
        }

        def run(*words: str) -> str:
            done = subprocess.run(
                words,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        with_curl = run("bash", "-euc", blocks("sh"))
        with_python = run(sys.executable, "-c", blocks("python"))

        assert '"id":"demo"' in with_curl
        assert "event: job\n" in with_curl
        assert '"status":"ok"' in with_curl
        assert re.search(r"^(completed|stopped max_pages).* pages$", with_python, re.MULTILINE)
        stored = pq.read_table(tmp_path / "pages.parquet")
        assert stored.num_rows == len(re.findall(r"^\d+ http", with_python, re.MULTILINE))
        assert json.loads(server.send("GET", "/api/jobs").body)["jobs"]
