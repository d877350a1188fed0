"""Secrets among settings: which names and values have one, and text without them."""

from __future__ import annotations

import re

#: Settings whose value is a secret, by name.
SECRET_NAME = re.compile(r"PASS$|PASSWORD$|SECRET|TOKEN|API_?KEY|CREDENTIALS")
#: The same as a member of a dict that was written as text, with its value.
_SECRET_MEMBER = re.compile(
    r"""(["'][^"'\s]*(?:pass|secret|token|api_?key|authorization|credential|cookie)[^"'\s]*["']\s*:\s*)"""
    r"""(?:b?"[^"\n]*"|b?'[^'\n]*')""",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"""(://[^/@\s"']*:)[^/@\s"']+@|([?&]password=)[^&\s"']+""", re.IGNORECASE)


def masked(text: str) -> str:
    """Return *text*, settings as Python or JSON writes them, with ``***`` for every secret."""
    text = _SECRET_MEMBER.sub(r"\1'***'", text)
    return _PASSWORD_IN_URL.sub(lambda found: f"{found[1]}***@" if found[1] else f"{found[2]}***", text)
