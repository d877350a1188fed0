"""Keeps our components when a spider's `custom_settings` have tables of components of their own.

Scrapy replaces the project's table by the spider's: a spider with one middleware would lose the contact in
its user agent and the reaction to sites in trouble, one with a download handler for s3 the address guard. An
add-on, because those run after that.
"""

from __future__ import annotations

from scrapy.settings import BaseSettings

from crawlproj import settings as ours

_TABLES = ("DOWNLOADER_MIDDLEWARES", "DOWNLOAD_HANDLERS", "EXTENSIONS", "ITEM_PIPELINES")
_PACKAGE = "crawlproj."


class SpiderComponents:
    """Adds what is ours to the tables, except what a table has an entry for: None still switches it off."""

    def update_settings(self, settings: BaseSettings) -> None:
        for name in _TABLES:
            table, built_in = settings[name], settings[f"{name}_BASE"]
            missing = {
                path: value
                for path, value in getattr(ours, name).items()
                if path not in table and _is_needed(path, value, built_in)
            }
            settings.set(name, {**missing, **table}, priority=settings.getpriority(name) or 0)


def _is_needed(path: str, value: int | str | None, built_in: BaseSettings) -> bool:
    if value is None:
        # A component of Scrapy's that one of ours replaces.
        return path in built_in
    return path.startswith(_PACKAGE) or str(value).startswith(_PACKAGE)
