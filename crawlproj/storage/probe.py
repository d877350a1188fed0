"""``python -m crawlproj.storage.probe ADDRESS RUN``: prints why the run could not write to the store.

A process of its own: what talks to stores has threads, and whoever asks may fork later (decision 0008).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

from crawlproj.errors import StoreUnavailable
from crawlproj.storage.uploads import Uploads


def trouble_with(address: str, run: str) -> str:
    """Return why *run* could not write to the store at *address*; '' if it can."""
    command = [sys.executable, "-P", "-m", __spec__.name, address, run]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""


async def _main(address: str, run: str) -> int:
    uploads = Uploads.to(address, run)
    try:
        if uploads:
            await uploads.check()
    except StoreUnavailable as exc:
        sys.stdout.write(f"{exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*sys.argv[1:])))
