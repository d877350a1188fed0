"""Small disks that can be filled: tmpfs, mounted where only this run and its processes see them."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

_BYTES = 2 << 30
_MARK = "CHAOS_OWN_MOUNTS"


def enter_own_mounts(module: str, arguments: list[str]) -> None:
    """Start this program again with mounts of its own, if that is allowed; they vanish with it."""
    if os.environ.get(_MARK) is None and os.geteuid() == 0 and _can_unshare():
        os.environ[_MARK] = "1"
        unshare = ["unshare", "--mount", "--propagation", "private"]
        os.execvp("unshare", [*unshare, sys.executable, "-m", module, *arguments])


def can_mount() -> bool:
    return _MARK in os.environ


def mount(folder: Path) -> None:
    """Put an empty disk at *folder*."""
    options = f"size={_BYTES},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free on the disk of *folder*."""
    with (folder / ".filler").open("wb", buffering=0) as filler:
        while (free := os.statvfs(folder)).f_bavail:
            try:
                os.posix_fallocate(
                    filler.fileno(), 0, filler.seek(0, os.SEEK_END) + free.f_bavail * free.f_frsize
                )
            except OSError as exc:
                # Somebody else took some of it meanwhile.
                if exc.errno != errno.ENOSPC:
                    raise


def unfill(folder: Path) -> None:
    (folder / ".filler").unlink(missing_ok=True)


def _can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0
