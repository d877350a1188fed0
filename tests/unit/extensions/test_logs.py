"""What Scrapy lists at its start: without secrets, and not in JSON logs."""

from __future__ import annotations

import json
import logging
import pprint
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scrapy.settings import Settings

from crawlproj.errors import BadSetting, StoreUnavailable
from crawlproj.extensions.logs import ProcessLog
from crawlproj.model.secrets import masked

SECRET = "hunter2"
SETTINGS = {
    "BOT_NAME": "news",
    "FTP_PASSWORD": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "FEEDS": {f"ftp://me:{SECRET}@host/items": {"format": "csv"}},
    "REDIS_URL": f"redis://host/0?password={SECRET}",
    "REDIS_PARAMS": {"username": "me", "password": SECRET},
    "DEFAULT_REQUEST_HEADERS": {"Authorization": f"Bearer {SECRET}", "Accept": "*/*"},
}


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Logs as Scrapy does at its start; returns what is in the file."""
    handlers, level = list(logging.root.handlers), logging.root.level

    def log(**settings: str) -> str:
        file = tmp_path / "log"
        ProcessLog.update_pre_crawler_settings(
            Settings({"LOG_FILE": str(file), "LOG_LEVEL": "INFO", **settings})
        )
        given = {"settings": pprint.pformat(SETTINGS)}
        logging.getLogger("scrapy.crawler").info("Overridden settings:\n%(settings)s", given)
        logging.getLogger("scrapy.middleware").info(
            "Enabled %(name)s:\n%(list)s", {"name": "x", "list": "[]"}
        )
        logging.getLogger("scrapy.core.engine").info("Spider opened")
        logging.getLogger("shop").info("Enabled the sale")
        return file.read_text()

    yield log
    for handler in set(logging.root.handlers) - set(handlers):
        logging.root.removeHandler(handler)
        handler.close()
    logging.root.setLevel(level)


def test_json_logs_do_not_list_settings_and_components(written: Callable[..., str]) -> None:
    lines = written(CRAWL_LOG="json").splitlines()

    assert [json.loads(line)["message"] for line in lines] == ["Spider opened", "Enabled the sale"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_list_of_settings_has_no_secrets(written: Callable[..., str], form: str) -> None:
    text = written(CRAWL_LOG=form, LOG_LEVEL="DEBUG")

    assert "BOT_NAME" in text
    assert "FTP_PASSWORD" in text
    assert SECRET not in text


def test_text_logs_keep_scrapys_lists(written: Callable[..., str]) -> None:
    text = written(CRAWL_LOG="text")

    assert "Overridden settings" in text
    assert "Enabled x" in text


def test_a_level_that_is_none_is_a_problem_of_that_setting(written: Callable[..., str]) -> None:
    with pytest.raises(BadSetting, match="LOG_LEVEL='debug' is not a log level"):
        written(LOG_LEVEL="debug")


def test_a_file_that_cannot_be_written_is_named(written: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailable, match=r"Cannot write the log .*file/x.log: .* with LOG_FILE"):
        written(LOG_FILE=str(tmp_path / "file" / "x.log"))


@pytest.mark.parametrize(
    "text",
    [
        "'DOWNLOAD_DELAY': 1.0",
        "'TOKENS_PER_PAGE': 3",
        "'a': 'redis://host:6379/0'",
        "'COOKIES_ENABLED': True",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert masked(text) == text
