"""A run owns its rules (change_rules): the first process sets them, the others obey, a change reaches all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler

from crawlproj.config import Config, load_config
from crawlproj.config.rules import Rules
from crawlproj.errors import BadArgument, BadSetting, RunMismatch
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate, Page
from crawlproj.pages.envelope import pack
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.runs.rules import RulesWatch, Terms, agree, given_rules, read_rules
from crawlproj.shard.obedience import obey
from crawlproj.spiders.web import WebSpider
from crawlproj.supervisor.change import change_run
from tests.redis.setbacks import Backup

RUN = "web"


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, RUN, partitions=2)


async def start(run: Run, *, spider: str = "web", may_change: bool = False, **given: object) -> Terms:
    """A process that was given settings comes to *run*."""
    terms = await agree(run, load_config(given), given.keys(), spider=spider, may_change=may_change)
    assert terms is not None
    return terms


async def rules_of(run: Run) -> Rules:
    rules = await read_rules(run)
    assert rules is not None
    return rules


async def test_the_first_process_sets_the_rules_and_the_next_obeys_them(run: Run) -> None:
    await start(run, DEPTH_LIMIT=1, CRAWL_TEXT="all")

    second = await start(run)

    assert (second.config.depth_limit, second.config.text) == (1, "all")


async def test_a_process_that_was_given_another_value_is_refused_and_told_what_to_do(run: Run) -> None:
    await start(run, DEPTH_LIMIT=1)

    with pytest.raises(
        RunMismatch, match=r"DEPTH_LIMIT is 1 in the run, and 2 was given\. .*--change --run web"
    ):
        await start(run, DEPTH_LIMIT=2)

    assert (await rules_of(run)).values["DEPTH_LIMIT"] == 1


async def test_of_two_that_come_first_one_sets_the_rules_and_the_other_is_refused(run: Run) -> None:
    results = await asyncio.gather(
        start(run, DEPTH_LIMIT=1), start(run, DEPTH_LIMIT=2), return_exceptions=True
    )

    assert [type(result) for result in results].count(RunMismatch) == 1


async def test_only_what_a_person_gave_to_a_process_counts(run: Run) -> None:
    settings = Settings()
    settings.set("DEPTH_LIMIT", 5, priority="project")
    settings.set("CRAWL_TEXT", "all", priority="spider")
    settings.set("CRAWL_EXCLUDE", "/x/", priority="cmdline")
    settings.set("CRAWL_CONTACT", "me@a.test", priority="project")
    settings.set("FROM_ENVIRONMENT", ["CRAWL_CONTACT"], priority="project")

    assert given_rules(settings) == {"CRAWL_EXCLUDE", "CRAWL_CONTACT"}


async def test_other_settings_of_the_project_are_said_and_not_obeyed(run: Run) -> None:
    await start(run, DEPTH_LIMIT=1)

    terms = await agree(run, load_config({"DEPTH_LIMIT": 2}), ())

    assert terms is not None
    assert terms.config.depth_limit == 1
    assert [str(one) for one in terms.ignored] == ["DEPTH_LIMIT 1 -> 2"]


async def test_defaults_beside_the_rules_of_a_run_are_not_worth_a_word(run: Run) -> None:
    await start(run, DEPTH_LIMIT=1)

    terms = await start(run)

    assert terms.ignored == []


async def test_who_starts_the_whole_run_may_change_limits_and_it_is_recorded(run: Run) -> None:
    await start(run, DEPTH_LIMIT=1)

    terms = await start(run, may_change=True, DEPTH_LIMIT=2)

    assert [str(change) for change in terms.changed] == ["DEPTH_LIMIT 1 -> 2"]
    [recorded] = (await rules_of(run)).changes
    assert recorded["values"] == {"DEPTH_LIMIT": [1, 2]}
    assert "@" in recorded["by"]
    assert recorded["at_ms"] > run.created_ms - 1


async def test_what_defines_the_stored_pages_cannot_be_changed_by_anyone(run: Run) -> None:
    await start(run)

    with pytest.raises(RunMismatch, match="CRAWL_TEXT is main in the run, and all was given"):
        await start(run, may_change=True, CRAWL_TEXT="all")


async def test_a_run_without_a_contact_takes_that_of_any_process(run: Run) -> None:
    await start(run)

    terms = await start(run, CRAWL_CONTACT="me@a.test")

    assert terms.config.contact == "me@a.test"


async def test_a_run_belongs_to_its_spider(run: Run) -> None:
    await start(run, spider="docs")

    with pytest.raises(RunMismatch, match=r"Run 'web' is one of the spider 'docs', not of 'web'"):
        await start(run, spider="web")


async def test_a_run_of_an_earlier_release_continues_to_follow_all_links(run: Run) -> None:
    await Frontier.of(run, Config()).admit([Candidate("https://a.test/")])

    terms = await start(run)

    assert terms.config.scope == "everything"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"CONCURRENT_REQUESTS": 9}, BadArgument, "CONCURRENT_REQUESTS belongs to a process"),
        ({}, BadArgument, "Give what to change"),
        ({"CRAWL_SCOPE": "list"}, BadSetting, "CRAWL_SCOPE_DOMAINS"),
        ({"CRAWL_MAX_URL": 100}, RunMismatch, "use another run name"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_and_nothing_is_changed(
    run: Run, given: dict[str, object], error: type[Exception], words: str
) -> None:
    await start(run)
    before = await rules_of(run)
    # What two settings say together is checked with the rules of the run.
    config = Config(scope="list") if "CRAWL_SCOPE" in given else load_config(given)

    with pytest.raises(error, match=words):
        await change_run(run, config, given.keys(), {})

    assert await rules_of(run) == before


async def test_the_sites_of_a_run_that_followed_everything_are_not_known_later(run: Run) -> None:
    await start(run, CRAWL_SCOPE="everything")

    with pytest.raises(BadArgument, match="cannot become sites"):
        await change_run(run, load_config({}), ["CRAWL_SCOPE"], {})


async def test_a_change_of_a_limit_is_one_of_the_run_too(run: Run) -> None:
    await start(run)

    changes = await change_run(run, load_config({"DEPTH_LIMIT": 2}), ["DEPTH_LIMIT"], {"pages": 50})

    assert changes == ["DEPTH_LIMIT 0 -> 2", "max-pages 0 -> 50"]
    assert (await run.read_map()).limits.pages == 50


def page(number: int) -> bytes:
    headers = {"content-type": "text/html"}
    body = f'<a href="/link/{number}">a link</a>'.encode()
    return pack(Page(f"http://a.test/{number}", RUN, "a.test", 1, 200, 0, 1, headers, body))


async def test_a_parser_at_work_follows_a_change_from_its_next_pages_on(
    run: Run, client: RedisClient, tmp_path: Path
) -> None:
    asked: list[int] = []

    async def is_over() -> bool:
        """The queue is empty: forbid deeper links, and give it another page."""
        asked.append(len(asked))
        if len(asked) == 1:
            await change_run(run, load_config({"DEPTH_LIMIT": 1}), ["DEPTH_LIMIT"], {})
            await client.command("RPUSH", keys.pages(RUN), page(2))
        return len(asked) > 2

    terms = await start(run, CRAWL_SCOPE="everything")
    config = terms.rules.obeyed_by(load_config({"CRAWL_DATA": str(tmp_path)}))
    await client.command("RPUSH", keys.pages(RUN), page(1))
    seconds = iter(range(10_000))
    parser = Parser(run, config, "p-1", is_over, clock=lambda: float(next(seconds)))

    await parser.run()

    counters = await run.read_counters()
    assert (counters.stored, counters.admitted) == (2, 1)


async def test_after_a_set_back_all_processes_obey_the_rules_that_redis_has(
    run: Run, bystander: RedisClient
) -> None:
    terms = await start(run, DEPTH_LIMIT=1)
    watch = RulesWatch(run, terms.config, terms.rules)
    backup = await Backup.of(bystander)
    await change_run(run, load_config({"DEPTH_LIMIT": 2}), ["DEPTH_LIMIT"], {})
    changed = await watch.look()
    await backup.restore()

    watch.follow((await run.read_map()).rules)

    assert changed is not None
    assert changed.depth_limit == 2
    assert watch.config.depth_limit == 1


async def test_rules_that_redis_has_lost_are_set_again_by_who_knows_them(
    run: Run, bystander: RedisClient
) -> None:
    backup = await Backup.of(bystander)
    terms = await start(run, DEPTH_LIMIT=1)
    watch = RulesWatch(run, terms.config, terms.rules)
    await backup.restore()

    await watch.restore()

    assert await rules_of(run) == terms.rules


async def test_a_process_stops_when_the_run_got_other_fixed_rules(run: Run, bystander: RedisClient) -> None:
    backup = await Backup.of(bystander)
    terms = await start(run, CRAWL_TEXT="all")
    watch = RulesWatch(run, terms.config, terms.rules)
    await backup.restore()
    await start(run)

    with pytest.raises(RunMismatch, match="got other rules while in use: CRAWL_TEXT all -> main"):
        await watch.look()


async def test_another_number_of_partitions_counts_only_if_it_was_given(
    client: RedisClient, run: Run
) -> None:
    again = await Run.open(client, RUN, partitions=64, strict=False)

    assert again.partitions == 2
    with pytest.raises(RunMismatch, match="CRAWL_PARTITIONS=2, not 64"):
        await Run.open(client, RUN, partitions=64)


async def test_rules_are_changed_also_when_redis_is_full(
    redis_server_factory: Callable[..., object], tmp_path: Path
) -> None:
    client = await RedisClient.open(url=redis_server_factory().url, data_dir=tmp_path, wait_s=1)  # type: ignore[attr-defined]
    try:
        run = await Run.open(client, RUN, partitions=2)
        await start(run)
        await client.command("CONFIG SET", "maxmemory", 1)

        await change_run(run, load_config({"DOWNLOAD_DELAY": 9}), ["DOWNLOAD_DELAY"], {})

        assert (await rules_of(run)).values["DOWNLOAD_DELAY"] == 9
    finally:
        await client.close()


async def test_a_child_of_a_supervisor_obeys_whatever_its_environment_says(run: Run) -> None:
    await start(run, CRAWL_CONTACT="new@a.test")
    given = {"CRAWL_CONTACT": "old@a.test", "FROM_ENVIRONMENT": ["CRAWL_CONTACT"]}

    async def open_as(**settings: object) -> Rules:
        crawler = get_crawler(WebSpider, given | settings)
        crawler.spider, crawler.engine = (
            crawler._create_spider(),
            SimpleNamespace(
                downloader=SimpleNamespace(middleware=SimpleNamespace(middlewares=())),
                scraper=SimpleNamespace(spidermw=SimpleNamespace(middlewares=())),
            ),
        )  # type: ignore[assignment]
        config = load_config(crawler.settings.copy_to_dict())
        return await obey(run, crawler, config, is_whole=False)

    assert (await open_as(CRAWL_SUPERVISOR=1)).values["CRAWL_CONTACT"] == "new@a.test"
    with pytest.raises(RunMismatch, match=r"CRAWL_CONTACT is new@a\.test in the run, and old@a\.test was"):
        await open_as()
