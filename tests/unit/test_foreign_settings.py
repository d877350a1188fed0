"""Scrapy's settings that mean something else in a run, or nothing."""

from __future__ import annotations

import pytest
from scrapy.settings import Settings, default_settings

from crawlproj import settings as ours
from crawlproj.config import load_config
from crawlproj.config.foreign import UNUSED, unused_settings
from crawlproj.errors import BadSetting
from crawlproj.spiders.web import WebSpider


def settings(**values: object) -> Settings:
    found = Settings()
    found.setmodule(ours, priority="project")
    found.setdict(values, priority="cmdline")
    WebSpider.update_settings(found)
    return found


def test_a_setting_that_a_run_does_not_use_is_named_with_what_to_set_instead() -> None:
    given = settings(REDIRECT_MAX_TIMES="3", AUTOTHROTTLE_ENABLED=True)

    throttle, redirect = unused_settings(given, "web")
    assert throttle.startswith("AUTOTHROTTLE_ENABLED has no effect in a run: ")
    assert "CRAWL_DELAY_FACTOR" in throttle
    assert redirect == "REDIRECT_MAX_TIMES has no effect in a run of the spider web: set CRAWL_MAX_REDIRECTS."
    assert [line.split()[0] for line in unused_settings(given, "docs")] == ["AUTOTHROTTLE_ENABLED"]


def test_nothing_is_said_of_defaults_nor_of_values_that_a_run_keeps_anyway() -> None:
    kept = {"AUTOTHROTTLE_ENABLED": "False", "LOGSTATS_INTERVAL": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": "1"}

    assert unused_settings(settings(), "web") == []
    assert unused_settings(settings(**kept), "web") == []


def test_every_setting_of_the_table_is_one_of_scrapys() -> None:
    # Deprecated, and still in many settings files.
    assert UNUSED.keys() - vars(default_settings).keys() == {"CONCURRENT_REQUESTS_PER_IP"}


@pytest.mark.parametrize(
    ("values", "attempts"),
    [
        ({}, 3),
        ({"RETRY_TIMES": "5"}, 6),
        ({"RETRY_TIMES": 0}, 1),
        ({"RETRY_TIMES": 5, "RETRY_ENABLED": "False"}, 1),
        ({"RETRY_TIMES": 5, "CRAWL_MAX_ATTEMPTS": 2}, 2),
    ],
)
def test_retry_times_are_attempts_unless_these_are_set(values: dict[str, object], attempts: int) -> None:
    assert load_config(settings(**values).copy_to_dict()).max_attempts == attempts


def test_retry_times_that_are_no_number_are_refused() -> None:
    with pytest.raises(BadSetting, match="RETRY_TIMES='often' is not a number of retries"):
        load_config({"RETRY_TIMES": "often"})
