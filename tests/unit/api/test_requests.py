"""What callers submit is checked field by field, and loosens nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from crawlproj.api.problems import Refused
from crawlproj.api.requests import JobRequest, Plan, split_seeds
from crawlproj.config import Config

SETTINGS = {"CRAWL_CONTACT": "me@example.org", "DOWNLOAD_DELAY": 2.0}
CONFIG = Config(contact="me@example.org", download_delay=2.0)


def plan(**fields: Any) -> Plan:
    return Plan(JobRequest.model_validate(fields), CONFIG, SETTINGS)


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("a.org b.org", ["a.org", "b.org"]),
        ("a.org, b.org,c.org,\n d.org", ["a.org", "b.org", "c.org", "d.org"]),
        ("# a list\na.org\n#b.org\n", ["a.org"]),
        (["a.org, b.org", "c.org"], ["a.org", "b.org", "c.org"]),
        ("http://a.org/x,y http://b.org/", ["http://a.org/x,y", "http://b.org/"]),
        ("http://a.org/x,http://b.org/y", ["http://a.org/x", "http://b.org/y"]),
        ("http://a.org,b.org", ["http://a.org", "b.org"]),
        (" ,, \n", []),
    ],
)
def test_seeds_are_separated_by_spaces_commas_and_lines(given: Any, seeds: list[str]) -> None:
    assert list(split_seeds(given)) == seeds


@pytest.mark.parametrize("name", ["seeds", "domains", "urls"])
def test_seeds_may_be_called_domains_or_urls(name: str) -> None:
    assert plan(**{name: ["example.org"]}).seeds == ["example.org"]


def test_a_plan_has_the_options_of_a_run() -> None:
    made = plan(
        seeds="example.org", scope="host", max_depth=3, max_pages=10, delay=2.5, shards=3, parsers="1..2"
    )

    assert made.options == {
        "mode": "sharded",
        "shards": 3,
        "parsers": "1..2",
        "max_pages": 10,
        "max_seconds": 0,
        "max_bytes": 0,
        "settings": {"CRAWL_SCOPE": "host", "DEPTH_LIMIT": "3", "DOWNLOAD_DELAY": "2.5"},
    }
    assert made.first_url == "https://example.org/"
    assert plan(seeds="a.org", mode="single").options["parsers"] == "0"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"seeds": ""}, "seeds"),
        ({"seeds": "http://10.0.0.1/"}, "seeds"),
        ({"seeds": "http://localhost/"}, "seeds"),
        ({"seeds": "http://169.254.169.254/latest"}, "seeds"),
        ({"seeds": "file:///etc/passwd"}, "seeds"),
        ({"seeds": "/etc/passwd"}, "seeds"),
        ({"seeds": "-"}, "seeds"),
        ({"seeds": "example.org", "delay": 0.5}, "delay"),
        ({"seeds": "example.org", "parsers": "9..2"}, "parsers"),
        ({"seeds": "example.org", "profile": "gone"}, "profile"),
        ({"seeds": "example.org", "profile": "pyproject.toml"}, "profile"),
        ({"seeds": " ".join(f"d{n}.org" for n in range(10_001))}, "seeds"),
    ],
)
def test_what_is_wrong_is_refused_with_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        plan(**fields)

    assert caught.value.status == 422
    assert {problem.field for problem in caught.value.errors} == {field}


@pytest.mark.parametrize(
    "fields",
    [
        {"seeds": "a.org", "CRAWL_ALLOW_ADDRESSES": "10.0.0.0/8"},
        {"seeds": "a.org", "settings": {"ROBOTSTXT_OBEY": "false"}},
        {"seeds": "a.org", "name": "../../etc"},
        {"seeds": "a.org", "name": "a/b"},
        {"seeds": "a.org", "name": "a\n"},
        {"seeds": "a.org", "profile": "../secret"},
        {"seeds": "a.org", "shards": 65},
        {"seeds": "a.org", "parsers": "9..1; rm"},
        {"seeds": "a.org", "scope": "list"},
        {"seeds": "a.org", "domains": "b.org"},
    ],
)
def test_there_is_no_field_for_anything_else(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JobRequest.model_validate(fields)


def test_a_profile_is_no_way_around_the_delay() -> None:
    made = plan(seeds="example.org", profile="broad")

    assert made.options["settings"]["DOWNLOAD_DELAY"] == "2"
    assert made.options["max_pages"] == 1_000_000


def test_ten_thousand_domains_are_a_job() -> None:
    names = [f"d{number}.org" for number in range(10_000)]

    made = plan(seeds="\n".join(names))

    assert made.seeds == names
