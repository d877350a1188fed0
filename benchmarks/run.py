"""Runs the benchmarks one after the other and keeps what they found under results/.

results/NAME.json holds the last full run of a benchmark for each Redis version; summary.md shows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROJECT = HERE.parent
RESULTS = HERE / "results"
PACKAGES = {
    "scrapy": "scrapy",
    "scrapy_redis": "scrapy-redis",
    "redis_py": "redis",
    "aiohttp": "aiohttp",
    "selectolax": "selectolax",
}


def main() -> int:
    known = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones (versus), or all: {', '.join(known)}"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute; nothing is kept")
    parser.add_argument(
        "--redis-server",
        metavar="PATH",
        help="the server to measure (REDIS_SERVER, else the one on PATH, else the wheel's)",
    )
    parser.add_argument(
        "--most-urls", type=int, metavar="N", help="leave out larger frontiers: 10 million take ten minutes"
    )
    parser.add_argument(
        "--gold", metavar="DIR", help="what `text` is measured against; left out without; see bench_text.py"
    )
    parser.add_argument(
        "--sets",
        metavar="DIR",
        help="what `metadata` is measured against; left out without; see bench_metadata.py",
    )
    parser.add_argument("--rounds", metavar="N", help="how often `versus` repeats (3)")
    parser.add_argument("--only", metavar="NAME;...", help="the crawlers that `versus` compares (all)")
    parser.add_argument("--corpus", choices=("wild", "docs"), help="the pages of `versus` (both)")
    parser.add_argument(
        "--pages", metavar="DIR", help="`versus`: wild pages, .html and .html.gz at any depth (made ones)"
    )
    given = parser.parse_args()
    if not given.gold:
        known.pop("text")
    if not given.sets:
        known.pop("metadata")
    names = list(known) if given.names == ["all"] else given.names or ["versus"]
    for name in names:
        if name not in known:
            parser.error(f"there is no benchmark {name!r}; there are: {', '.join(known)}")

    options = ["--quick"] if given.quick else []
    options += ["--redis-server", given.redis_server] if given.redis_server else []
    options += ["--most-urls", str(given.most_urls)] if given.most_urls else []
    own = {
        "text": ["--gold", given.gold],
        "metadata": ["--sets", given.sets],
        "versus": [
            *options,
            *(["--rounds", given.rounds] if given.rounds else []),
            *(["--only", given.only] if given.only else []),
            *(["--pages", given.pages] if given.pages else []),
        ],
    }
    # Each in a report of its own, so that neither takes the other's place or fails with it.
    own["versus-wild"] = [*own["versus"], "--corpus", "wild"]
    own["versus"] += ["--corpus", "docs"]
    known["versus-wild"] = known["versus"]
    chosen = {None: ["versus-wild", "versus"], "wild": ["versus-wild"], "docs": ["versus"]}[given.corpus]
    names = [one for name in names for one in (chosen if name == "versus" else [name])]
    is_kept = not (given.quick or given.only)
    failed = []
    for name in names:
        print(f"== {name}", file=sys.stderr, flush=True)
        record = run_one(known[name], own.get(name, options))
        if record is None:
            failed.append(name)
            continue
        print("\n".join(shown(name, record)))
        if is_kept:
            keep(name, record)
    if is_kept:
        (RESULTS / "summary.md").write_text(summary())
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_one(path: Path, options: list[str]) -> dict[str, Any] | None:
    """Run a benchmark in a process of its own; returns its report with place and time, None if it failed."""
    where_and_when = circumstances()
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report_path = Path(folder) / "report.json"
        ended = subprocess.run(
            [sys.executable, str(path), *options, "--json", str(report_path)],
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if report_path.exists():
            report: dict[str, Any] = json.loads(report_path.read_text())
        elif ended.stdout:
            # bench_simweb needs no Redis and only prints; its exit code says whether its goal was reached.
            *lines, verdict = ended.stdout.splitlines()
            goal = {
                "what": path.stem,
                "wanted": verdict,
                "measured": "see below",
                "is_met": ended.returncode == 0,
            }
            report = {"redis_version": "", "goals": [goal], "tables": [], "lines": lines}
        else:
            return None
    return where_and_when | {"took_s": round(time.monotonic() - started_s)} | report


def circumstances() -> dict[str, Any]:
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "crawlproj")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git("rev-parse", "--short", "HEAD").strip() + (" and changes" if changed else ""),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    } | {key: version(name) for key, name in PACKAGES.items()}


def _git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)
    return ended.stdout if ended.returncode == 0 else "unknown"


def keep(name: str, record: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    records = json.loads(path.read_text()) if path.exists() else {}
    records[record["redis_version"]] = record
    path.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")


def summary() -> str:
    found = [
        (path.stem, record)
        for path in sorted(RESULTS.glob("*.json"))
        for _, record in sorted(json.loads(path.read_text()).items(), reverse=True)
    ]
    lines = ["# What was measured", "", "Written by `make bench`. README.md says how to read it.", ""]
    lines += ["| goal | wanted | measured | Redis | |", "|---|---|---|---|---|"]
    for _, record in found:
        for goal in record["goals"]:
            verdict = "reached" if goal["is_met"] else "**missed**"
            cells = (goal["what"], goal["wanted"], goal["measured"], record["redis_version"], verdict)
            lines.append(f"| {' | '.join(cells)} |")
    for name, record in found:
        lines += ["", *shown(name, record)]
    return "\n".join(lines) + "\n"


def shown(name: str, record: dict[str, Any]) -> list[str]:
    redis = f", Redis {record['redis_version']}" if record["redis_version"] else ""
    # Older records name fewer.
    packages = ", ".join(f"{package} {record[key]}" for key, package in PACKAGES.items() if key in record)
    machine = f"{record['cores']} cores, Python {record['python']}, {packages}"
    lines = [f"## {name}{redis}", ""]
    lines += [f"{record['date']}, {record['took_s']} s, commit {record['commit']}; {machine}"]
    if "lines" in record:
        lines += ["", *(f"    {line}" for line in record["lines"])]
    for table in record["tables"]:
        lines += ["", f"### {table['title']}", "", f"| {' | '.join(table['columns'])} |"]
        lines += ["|" + "---|" * len(table["columns"])]
        lines += [f"| {' | '.join(row)} |" for row in table["rows"]]
        lines += ["", *table["notes"]] if table["notes"] else []
    return lines


if __name__ == "__main__":
    sys.exit(main())
