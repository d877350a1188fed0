"""Pages on disk: committed segments and their reader. No Redis."""

from crawlproj.storage.reader import read_pages

__all__ = ["read_pages"]
