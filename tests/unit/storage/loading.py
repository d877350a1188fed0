"""Loads the files that are given with every tool in .venv/loading; prints the rows of each as JSON."""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import duckdb
import pyarrow.dataset

Rows = list[dict[str, Any]]


def load(path: str, cache: str) -> Iterator[tuple[str, Rows]]:
    import datasets
    import pandas
    import polars

    kind = path.removesuffix(".zst").rpartition(".")[2]
    if kind == "parquet":
        yield "pandas", pandas.read_parquet(path).to_dict("records")
        yield "polars", polars.read_parquet(path).to_dicts()
        yield "duckdb", duckdb.sql(f"SELECT * FROM '{path}'").to_arrow_table().to_pylist()
        yield "arrow", pyarrow.dataset.dataset([path]).to_table().to_pylist()
    elif kind == "jsonl":
        yield "pandas", pandas.read_json(path, lines=True).to_dict("records")
        yield "polars", polars.read_ndjson(path).to_dicts()
        yield "duckdb", duckdb.sql(f"SELECT * FROM read_json('{path}')").to_arrow_table().to_pylist()
    else:
        yield "pandas", pandas.read_csv(path, keep_default_na=False).to_dict("records")
        yield "polars", polars.read_csv(path).to_dicts()
        yield "duckdb", duckdb.sql(f"SELECT * FROM read_csv('{path}')").to_arrow_table().to_pylist()
    loader = {"jsonl": "json"}.get(kind, kind)
    loaded = datasets.load_dataset(loader, data_files=path, split="train", cache_dir=cache)
    yield "datasets", loaded.to_list()


def plain(value: Any) -> object:
    """Return what JSON lacks: times as ISO 8601, arrays as lists."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.tolist()


with tempfile.TemporaryDirectory() as home:
    # Read when the library is imported: no network, nothing in the home directory.
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "1"
    os.environ["HF_HOME"] = home
    found = {path: dict(load(path, home)) for path in sys.argv[1:]}
    print(json.dumps(found, default=plain))
