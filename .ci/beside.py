"""Makes chains of targets beside each other: ``python .ci/beside.py FIRST SECOND+THIRD``.

What the first chain prints is shown as it comes, what a target of the others prints once it has ended.
"""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor


def main(*chains: str) -> int:
    shown, *others = (chain.split("+") for chain in chains)
    print(f"Beside each other: {'; '.join(map(' then '.join, [shown, *others]))}", flush=True)
    with ThreadPoolExecutor(len(others)) as pool:
        # Ctrl-C reaches every one of them, too, and each ends by itself.
        jobs = [pool.submit(make_quietly, chain) for chain in others]
        failed = [target for target in shown if subprocess.call(["make", target])]
        failed += [target for job in jobs for target in job.result()]
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return bool(failed)


def make_quietly(targets: list[str]) -> list[str]:
    """Make *targets* one after the other; returns those that failed."""
    failed = []
    for target in targets:
        begun_s = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            if subprocess.call(["make", target], stdout=log, stderr=subprocess.STDOUT):
                failed.append(target)
            log.seek(0)
            print(f"\n== make {target}, {time.monotonic() - begun_s:.0f} s\n{log.read()}", flush=True)
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
