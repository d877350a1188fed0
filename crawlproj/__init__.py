"""A polite, sharded, resumable web crawler on Scrapy and Redis.

``from crawlproj import read_items, read_pages`` reads what a crawl has stored, from anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawlproj.storage import read_items, read_pages

__all__ = ["read_items", "read_pages"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import what is read with only when it is used: every process imports this package."""
    if name in __all__:
        from crawlproj import storage

        return getattr(storage, name)
    raise AttributeError(f"module 'crawlproj' has no attribute {name!r}")
