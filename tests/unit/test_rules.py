"""The rules of a run as values: what belongs to it, how it is written, what a difference says."""

from __future__ import annotations

import json

import pytest

from crawlproj.config import load_config
from crawlproj.config.rules import RULES, Difference, Rules
from crawlproj.errors import RunMismatch
from crawlproj.runs.rules import refusal

SETTINGS = {
    "DEPTH_LIMIT": 3,
    "CRAWL_EXCLUDE": ["/private/"],
    "DOWNLOAD_SLOTS": {"a.test": {"delay": 2}},
    "CRAWL_CONTACT": "me@a.test",
    "PAGE_STORE": "parquet,warc",
}


def test_what_defines_a_crawl_belongs_to_the_run_and_what_a_machine_can_bear_to_the_process() -> None:
    assert {"CRAWL_SCOPE", "DEPTH_LIMIT", "CRAWL_TEXT", "PAGE_STORE", "USER_AGENT", "ROBOTSTXT_OBEY"} <= (
        RULES.keys()
    )
    assert RULES.keys().isdisjoint({"CONCURRENT_REQUESTS", "REDIS_URL", "CRAWL_DATA", "CRAWL_PARSER_MEMORY"})


def test_rules_are_the_same_when_they_were_written_and_read() -> None:
    rules = Rules.of(load_config(SETTINGS), "web")

    again = Rules.decode(rules.encode(), "news")

    assert (again, again.encode()) == (rules, rules.encode())


def test_a_process_with_other_options_obeys_the_rules_and_keeps_the_rest() -> None:
    rules = Rules.of(load_config(SETTINGS), "web")

    obeyed = rules.obeyed_by(load_config({"DEPTH_LIMIT": 9, "CONCURRENT_REQUESTS": 7}))

    assert obeyed == load_config(SETTINGS | {"CONCURRENT_REQUESTS": 7})


def test_a_rule_that_is_newer_than_the_run_has_its_default() -> None:
    stored = json.loads(Rules.of(load_config(SETTINGS), "web").encode())
    del stored["values"]["CRAWL_TEXT"]

    assert Rules.decode(json.dumps(stored), "news").values["CRAWL_TEXT"] == "main"


@pytest.mark.parametrize("news", [{"version": 2}, {"values": {"CRAWL_LATER": 1}}])
def test_rules_of_a_later_release_are_refused(news: dict[str, object]) -> None:
    stored = json.loads(Rules.of(load_config({}), "web").encode())

    with pytest.raises(RunMismatch, match=r"run 'news' were written by another release .*Use that release"):
        Rules.decode(json.dumps(stored | news), "news")


def test_only_the_values_that_are_not_the_defaults_are_unusual() -> None:
    rules = Rules.of(load_config(SETTINGS), "web")

    assert rules.unusual() == SETTINGS | {"PAGE_STORE": ["parquet", "warc"]}


def test_the_last_fifty_changes_are_remembered() -> None:
    rules = Rules.of(load_config({}), "web")

    for depth in range(60):
        rules = rules.changed([Difference("DEPTH_LIMIT", depth, depth + 1)], "ann@one", depth)

    assert rules.values["DEPTH_LIMIT"] == 60
    assert [change["at_ms"] for change in rules.changes] == list(range(10, 60))


def test_a_refusal_says_the_values_and_how_to_change_them() -> None:
    differing = [Difference("DEPTH_LIMIT", 1, 3), Difference("DOWNLOAD_SLOTS", {}, {"a.test": {"delay": 2}})]

    assert refusal("news", differing) == (
        "Run 'news' has its own rules: DEPTH_LIMIT is 1 in the run, and 3 was given; DOWNLOAD_SLOTS is none "
        'in the run, and {"a.test": {"delay": 2}} was given. Leave it out, or change it for the whole run: '
        """scrapy run --change --run news -s DEPTH_LIMIT=3 -s DOWNLOAD_SLOTS='{"a.test": {"delay": 2}}'."""
    )


def test_a_refusal_of_what_cannot_change_proposes_another_run() -> None:
    text = refusal("news", [Difference("CRAWL_TEXT", "main", "all"), Difference("DEPTH_LIMIT", 1, 3)])

    assert text.endswith("Leave it out, or use another run name.")
