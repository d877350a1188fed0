"""Pages on disk: committed segments, and the way to read them again. No Redis."""

from crawlproj.storage.reader import read_pages

__all__ = ["read_pages"]
