"""The health check of a container: are its processes running, and none of them stuck?

``python deploy/health.py http://127.0.0.1:9410/metrics`` exits with 0 or 1, and prints why.
"""

from __future__ import annotations

import math
import re
import sys
import urllib.request

TIMEOUT_S = 8.0
#: Twice CRAWL_SHARD_LEASE_SECONDS, within which a shard sends several heartbeats.
OLDEST_HEARTBEAT_S = 60.0
_SAMPLE = re.compile(r"^crawlproj_(\w+)(\{[^}]*\})? (\S+)", re.MULTILINE)


def problem_in(metrics: str) -> str:
    """Return what is wrong with the processes of these *metrics*; '' if healthy."""
    samples = _SAMPLE.findall(metrics)
    if not any(name == "process_start_time_seconds" for name, _, _ in samples):
        return "no process reports metrics"
    for name, labels, value in samples:
        # Infinite: it has just started and has no number yet.
        if name == "heartbeat_age_seconds" and OLDEST_HEARTBEAT_S < float(value) < math.inf:
            return f"the last heartbeat is {float(value):.0f} s old: {labels}"
    return ""


def main(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            problem = problem_in(response.read().decode())
    except OSError as exc:
        problem = f"{url} is unreachable: {exc}"
    sys.stdout.write(f"{problem or 'healthy'}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
