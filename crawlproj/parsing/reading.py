"""Reading pages: in this process, within a time limit, or in one of their own."""

from __future__ import annotations

from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.pages.envelope import unpack
from crawlproj.parsing.extract import Extract, ExtractOptions, extract
from crawlproj.parsing.extractor import Extractor
from crawlproj.parsing.guard import TimeLimit


class Reading:
    """How the pages of one parser are read. *time_limit* and *extractor* are as for `Parser`."""

    def __init__(self, config: Config, time_limit: TimeLimit | None, extractor: Extractor | None) -> None:
        self._options = ExtractOptions(config)
        self._time_limit = time_limit
        self._extractor = extractor

    def read(self, raw: bytes, position: int) -> tuple[Page, Extract]:
        """Return a page and its content. One that takes too long ends the process that parses it."""
        if self._time_limit is not None:
            self._time_limit.start(position)
        try:
            page = unpack(raw)
            if page.is_bare:
                return page, Extract()
            if self._extractor is not None:
                return page, self._extractor.extract(raw)
            return page, extract(page, self._options)
        finally:
            if self._time_limit is not None:
                self._time_limit.stop()

    def change(self, config: Config) -> None:
        """Read by other options from the next page on."""
        self._options = ExtractOptions(config)
        if self._extractor is not None:
            self._extractor.change(config)

    def start_over(self) -> None:
        if self._time_limit is not None:
            self._time_limit.start_over()
