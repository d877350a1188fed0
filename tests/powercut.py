"""The end of a process at a step, without one."""

from __future__ import annotations

import os

from crawlproj.storage.segments import SegmentWriter


class PowerCut(BaseException):
    """Stands for the end of the process: nothing catches it."""


def unlock(writer: SegmentWriter) -> None:
    """What the kernel does when its process ends."""
    for lock in writer._locks:
        os.close(lock)
    writer._locks = []
