"""Pages and items on disk: committed segments and their readers. No Redis."""

from crawlproj.storage.items import read_items
from crawlproj.storage.reader import read_pages

__all__ = ["read_items", "read_pages"]
