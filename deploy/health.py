"""The health check of a container: are its processes there, and is none of them stuck?

``python deploy/health.py http://127.0.0.1:9410/metrics`` ends with 0 or 1, and says why in one line.
"""

from __future__ import annotations

import math
import re
import sys
import urllib.request

TIMEOUT_S = 8.0
#: A shard renews its hold several times within CRAWL_SHARD_LEASE_SECONDS (30 s); by now it has lost it.
OLDEST_HEARTBEAT_S = 60.0
_SAMPLE = re.compile(r"^crawlproj_(\w+)(\{[^}]*\})? (\S+)", re.MULTILINE)


def trouble_in(metrics: str) -> str:
    """Return what is wrong with the processes that told *metrics*; '' when nothing is."""
    samples = _SAMPLE.findall(metrics)
    if not any(name == "process_start_time_seconds" for name, _, _ in samples):
        return "no process tells its figures"
    for name, labels, value in samples:
        # Infinite: it has no number yet, as it has just begun.
        if name == "heartbeat_age_seconds" and OLDEST_HEARTBEAT_S < float(value) < math.inf:
            return f"the last heartbeat is {float(value):.0f} s old: {labels}"
    return ""


def main(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            trouble = trouble_in(answer.read().decode())
    except OSError as exc:
        trouble = f"{url} does not answer: {exc}"
    sys.stdout.write(f"{trouble or 'healthy'}\n")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
