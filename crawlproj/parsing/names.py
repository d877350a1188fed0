"""Names of parsers: each list of pages in Redis has a name that no other has had."""

from __future__ import annotations

import os
import re
import secrets
import socket


def name_after(restarts: int, name: str) -> str:
    """Return what parser *name* is called after it has started over so often.

    A new list each time: no late message about the old one can take pages from the new one.
    """
    return f"{name}.{restarts}" if restarts else name


def new_parser_name(name: str = "") -> str:
    """Return a unique name: *name* or the host's, the PID, a random part."""
    readable = re.sub(r"[^A-Za-z0-9_.]+", "_", name or socket.gethostname())[:40]
    return f"{readable}-{os.getpid()}-{secrets.token_hex(4)}"
