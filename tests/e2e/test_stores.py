"""A whole crawl whose pages go to an object store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.storage import read_pages
from tests.stores import BUCKET, FaultyProxy

pytestmark = pytest.mark.e2e


def test_one_command_crawls_into_a_store(scrapy: Callable[..., Any], s3: FaultyProxy, tmp_path: Path) -> None:
    store = {"CRAWL_STORE": f"s3://{BUCKET}/whole-crawl", "DOWNLOAD_DELAY": "0.1"}
    # Its parsers are forked after the check of the store: what talks to it must not be there by then.
    process = scrapy("run", "--simweb", "4", "--json", "--data", str(tmp_path), **store)

    assert process.wait() == 0, process.log
    summary = json.loads(re.findall(r"^\{.*\}$", process.log, re.MULTILINE)[-1])
    assert summary["pages"].startswith(f"s3://{BUCKET}/whole-crawl/runs/")
    assert summary["pages_elsewhere"] == 0
    assert len(list(read_pages(summary["pages"]))) == summary["pages_stored"] == summary["fetched"]
    assert not list(tmp_path.glob("runs/*/pages/*"))
