"""A Scrapy add-on: one line in the settings of any Scrapy project gives its spiders our scheduler and client.

ADDONS = {"crawlproj.addon.CrawlprojAddon": 300}
"""

from __future__ import annotations

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from crawlproj import settings as ours
from crawlproj.extensions.logs import ProcessLog

#: Names of the project itself; ours are for our own.
_NOT_SHARED = ("BOT_NAME", "NEWSPIDER_MODULE")
#: Components by name: those of the project are added to ours.
_COMPONENTS = ("ADDONS", "DOWNLOADER_MIDDLEWARES", "DOWNLOAD_HANDLERS", "EXTENSIONS", "ITEM_PIPELINES")


class CrawlprojAddon(ProcessLog):
    """Sets what ``crawlproj/settings.py`` sets, except where the project has a value of its own."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        wire(settings)
        super().update_pre_crawler_settings(settings)


def wire(settings: BaseSettings) -> None:
    """Put our settings below those of the project; components and spiders of both are used."""
    for name, value in vars(ours).items():
        if not name.isupper() or name in _NOT_SHARED:
            continue
        priority = SETTINGS_PRIORITIES["addon"]
        if name in _COMPONENTS:
            value = {**value, **settings.getdict(name)}
            priority = max(priority, settings.getpriority(name) or 0)
        elif name == "SPIDER_MODULES":
            value = list(dict.fromkeys([*settings.getlist(name), *value]))
            priority = max(priority, settings.getpriority(name) or 0)
        settings.set(name, value, priority)
