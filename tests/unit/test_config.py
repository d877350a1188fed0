"""Options: read, limited, and refused with a sentence that helps."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from crawlproj.config import Config, load_config
from crawlproj.config.declare import name_of
from crawlproj.errors import EXIT_USAGE, BadSetting


def refusal_of(**values: object) -> str:
    with pytest.raises(BadSetting) as caught:
        load_config(values)
    return str(caught.value)


def test_nothing_given_means_the_defaults() -> None:
    config = load_config({})

    assert config == Config()
    assert (config.partitions, config.lease_seconds, config.data) == (64, 300.0, Path("data"))
    assert config.robotstxt_obey
    assert not config.scheduler_flush_on_start


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("CRAWL_CHAIN", "8", "chain", 8),
        ("CRAWL_LEASE_SECONDS", "60", "lease_seconds", 60.0),
        ("CRAWL_LEASE_SECONDS", 60, "lease_seconds", 60.0),
        ("CRAWL_DATA", "/somewhere/else", "data", Path("/somewhere/else")),
        ("ROBOTSTXT_OBEY", "false", "robotstxt_obey", False),
        ("ROBOTSTXT_OBEY", "False", "robotstxt_obey", False),
        ("ROBOTSTXT_OBEY", 0, "robotstxt_obey", False),
        ("SCHEDULER_FLUSH_ON_START", "true", "scheduler_flush_on_start", True),
        ("REDIS_URL", "", "redis_url", None),
        ("DOWNLOAD_SLOTS", '{"a.test": {"delay": 5}}', "download_slots", {"a.test": {"delay": 5}}),
    ],
)
def test_a_value_from_the_command_line_is_read_as_its_type(
    name: str, text: object, attribute: str, value: object
) -> None:
    config = load_config({name: text})

    assert getattr(config, attribute) == value
    assert type(getattr(config, attribute)) is type(value)


def test_scrapys_many_other_settings_pass_unseen() -> None:
    assert load_config({"LOG_LEVEL": "INFO", "COOKIES_ENABLED": False}) == Config()


def test_a_none_is_as_good_as_nothing() -> None:
    assert load_config({"REDIS_URL": None, "CRAWL_CHAIN": None}) == Config()


def test_a_misspelt_name_is_refused_with_the_right_one() -> None:
    assert (
        refusal_of(CRAWL_LEASE_SECOND=60)
        == "Unknown setting CRAWL_LEASE_SECOND. Did you mean CRAWL_LEASE_SECONDS?"
    )


def test_an_unknown_name_like_no_other_is_refused_with_where_to_look() -> None:
    assert (
        refusal_of(CRAWL_ZZZZZZZZ=1) == "Unknown setting CRAWL_ZZZZZZZZ. docs/settings.md lists all settings."
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "CRAWL_LEASE_SECONDS",
            "long",
            "CRAWL_LEASE_SECONDS='long' is not a valid float. Give a float (1 to 86400), such as 300.",
        ),
        (
            "CRAWL_PARTITIONS",
            0,
            "CRAWL_PARTITIONS=0 is out of range. Give an int (1 to 4096), such as 64.",
        ),
        (
            "CRAWL_PARTITIONS",
            5000,
            "CRAWL_PARTITIONS=5000 is out of range. Give an int (1 to 4096), such as 64.",
        ),
        (
            "CRAWL_CHAIN",
            1.5,
            "CRAWL_CHAIN=1.5 is not a valid int. Give an int (1 to 1000), such as 16.",
        ),
        (
            "CRAWL_CHAIN",
            True,
            "CRAWL_CHAIN=True is not a valid int. Give an int (1 to 1000), such as 16.",
        ),
        (
            "DOWNLOAD_DELAY",
            "nan",
            "DOWNLOAD_DELAY='nan' is not a valid float. Give a float (0 to 86400), such as 1.",
        ),
        (
            "DOWNLOAD_SLOTS",
            '["a.test"]',
            (
                "DOWNLOAD_SLOTS='[\"a.test\"]' is not a valid dict of dicts (or JSON object of objects). "
                "Give a dict of dicts (or JSON object of objects), such as "
                '{"example.org": {"delay": 5}}.'
            ),
        ),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(name: str, value: object, message: str) -> None:
    assert refusal_of(**{name: value}) == message


@pytest.mark.parametrize("value", ["maybe", "", 2])
def test_a_bool_is_never_guessed(value: object) -> None:
    assert "is not a valid bool" in refusal_of(ROBOTSTXT_OBEY=value)


def test_a_lease_must_outlive_a_download() -> None:
    message = refusal_of(CRAWL_LEASE_SECONDS=30, DOWNLOAD_TIMEOUT=30)

    assert "CRAWL_LEASE_SECONDS=30 does not exceed DOWNLOAD_TIMEOUT=30" in message


def test_the_soft_limit_of_the_page_queue_is_not_above_the_hard_one() -> None:
    message = refusal_of(CRAWL_PAGE_QUEUE_SOFT=5000)

    assert "CRAWL_PAGE_QUEUE_SOFT=5000 is above CRAWL_PAGE_QUEUE_HARD=4000" in message


@pytest.mark.parametrize("name", ["../up", "a/b", "a b", "{x}", ".hidden", "x" * 65, "a\n"])
def test_a_run_is_named_so_that_it_can_be_a_directory_and_a_key(name: str) -> None:
    assert "cannot name a run" in refusal_of(CRAWL_RUN=name)


@pytest.mark.parametrize(
    "slot", [{"delay": -1}, {"delay": "5"}, {"delay": float("inf")}, {"concurrency": 0}, {"concurrency": 1.5}]
)
def test_a_domains_own_slot_must_make_sense(slot: dict[str, object]) -> None:
    message = refusal_of(DOWNLOAD_SLOTS={"a.test": slot})

    assert message.startswith("DOWNLOAD_SLOTS['a.test'] has ")


SUBDOMAINS = ": its subdomains are included, and ports do not matter."


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (
            {"a.org": {"dely": 3}},
            "DOWNLOAD_SLOTS['a.org'] has the unknown field 'dely'. Did you mean 'delay'?",
        ),
        (
            {"a.org": {"pause": 3}},
            "DOWNLOAD_SLOTS['a.org'] has the unknown field 'pause'. Known: 'delay' and 'concurrency'.",
        ),
        (
            {"https://a.org/blog": {}},
            f"DOWNLOAD_SLOTS has 'https://a.org/blog', which is not a domain. Write 'a.org'{SUBDOMAINS}",
        ),
        (
            {"a.org:8080": {}},
            f"DOWNLOAD_SLOTS has 'a.org:8080', which is not a domain. Write 'a.org'{SUBDOMAINS}",
        ),
        (
            {"*.a.org": {}},
            f"DOWNLOAD_SLOTS has '*.a.org', which is not a domain. Write example.org{SUBDOMAINS}",
        ),
        ({"co.uk": {}}, f"No site is at a public suffix. Write example.org{SUBDOMAINS}"),
    ],
)
def test_a_slot_that_would_slow_down_nothing_is_refused(slots: dict[str, object], message: str) -> None:
    assert refusal_of(DOWNLOAD_SLOTS=slots).endswith(message)


def test_slots_of_hosts_and_addresses_with_what_scrapy_knows_are_accepted() -> None:
    slots = {
        "Example.org": {"delay": 5, "randomize_delay": False},
        "www.example.co.uk": {"concurrency": 2, "jitter": 0.5},
        "localhost": {"delay": 0},
        "127.0.0.1": {"delay": 0.5},
        "[::1]": {},
    }

    assert load_config({"DOWNLOAD_SLOTS": slots}).download_slots == slots


def test_all_wrong_settings_are_found_at_once_each_with_its_name_and_value() -> None:
    with pytest.raises(BadSetting) as refused:
        load_config(
            {
                "CRAWL_CONTAKT": "me@example.org",
                "CRAWL_CHAIN": "long",
                "CRAWL_LEASE_SECONDS": "short",
                "DOWNLOAD_TIMEOUT": 400,
                "CRAWL_EXCLUDE": "(",
                "DOWNLOAD_SLOTS": {"a.org": {"dely": 3, "concurrency": 0}},
            }
        )

    # Whether a lease outlasts a download cannot be said.
    assert [(problem.field, problem.value) for problem in refused.value.problems] == [
        ("CRAWL_CONTAKT", ""),
        ("CRAWL_CHAIN", "long"),
        ("CRAWL_LEASE_SECONDS", "short"),
        ("DOWNLOAD_SLOTS['a.org']", "dely"),
        ("DOWNLOAD_SLOTS['a.org']", "0"),
        ("CRAWL_EXCLUDE", "("),
    ]
    assert len(str(refused.value).splitlines()) == 6


def test_a_password_in_redis_url_is_never_repeated() -> None:
    message = refusal_of(REDIS_URL="http://:hunter2@redis.test:6379/0")
    config = load_config(
        {"REDIS_URL": "redis://:hunter2@redis.test:6379/0", "REDIS_PARAMS": {"password": "hunter2"}}
    )

    assert "hunter2" not in message
    assert "hunter2" not in repr(config)


def test_a_refused_setting_ends_the_process_with_the_code_for_usage() -> None:
    with pytest.raises(BadSetting) as caught:
        load_config({"CRAWL_CHAIN": "many"})

    assert caught.value.exit_code == EXIT_USAGE


def test_a_config_cannot_be_changed() -> None:
    config = Config()

    with pytest.raises(FrozenInstanceError):
        config.chain = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "agent"),
    [
        ({}, "crawlproj"),
        ({"USER_AGENT": "mybot/2.0 (+https://my.test)"}, "mybot"),
        ({"USER_AGENT": "my bot"}, "my"),
        ({"USER_AGENT": "mybot/2.0", "ROBOTSTXT_USER_AGENT": "other"}, "other"),
    ],
)
def test_robots_are_asked_by_the_name_of_the_product(values: dict[str, object], agent: str) -> None:
    assert load_config(values).robots_agent == agent


def test_every_default_passes_its_own_check() -> None:
    defaults = {name_of(option): getattr(Config(), option.name) for option in fields(Config)}

    assert load_config(defaults) == Config()


@pytest.mark.parametrize("old", ["fast", "article"])
def test_an_old_name_of_a_choice_is_taken_with_a_warning(old: str) -> None:
    with pytest.warns(FutureWarning, match=f"CRAWL_TEXT={old!r} is now called 'main'."):
        config = load_config({"CRAWL_TEXT": old})

    assert config.text == "main"


def test_an_unknown_text_is_refused() -> None:
    with pytest.raises(BadSetting, match="CRAWL_TEXT='quick' is not one of its choices"):
        load_config({"CRAWL_TEXT": "quick"})


@pytest.mark.parametrize("text", ["10.0.0.1/8", "localhost", "127.0.0.0/33"])
def test_an_invalid_network_is_refused(text: str) -> None:
    assert f"CRAWL_ALLOW_ADDRESSES has {text!r}: " in refusal_of(CRAWL_ALLOW_ADDRESSES=f"127.0.0.1,{text}")
