"""What is scheduled where, and with which arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.errors import BadArgument
from crawlproj.supervisor.launch import has_credentials, job_settings, plan_jobs, run_of
from crawlproj.supervisor.scrapyd import ScrapydServer

HERE = ScrapydServer("http://localhost:6800")
ELSEWHERE = ScrapydServer("http://crawler.test:6800")


def test_jobs_are_dealt_to_the_servers_in_turn() -> None:
    jobs = plan_jobs("news", shards=3, parsers=2, servers=[HERE, ELSEWHERE])

    assert [(job.title, job.server) for job in jobs] == [
        ("shard 0", HERE),
        ("shard 1", ELSEWHERE),
        ("shard 2", HERE),
        ("parser 0", ELSEWHERE),
        ("parser 1", HERE),
    ]


def test_a_shard_gets_its_number_and_how_many_there_are() -> None:
    [_, shard, parser] = plan_jobs("news", shards=2, parsers=1, servers=[HERE])

    assert (shard.spider, shard.arguments) == ("web", {"run": "news", "shard": "1", "shards": "2"})
    assert (parser.spider, parser.arguments) == ("parser", {"run": "news"})


@pytest.mark.parametrize("run", ["news", "news.shard-1.0123abcd", "a.b"])
def test_the_id_of_a_job_names_its_run(run: str) -> None:
    assert {run_of(job.id) for job in plan_jobs(run, 11, 2, [HERE])} == {run}


def test_jobs_of_two_launches_have_numbers_of_their_own() -> None:
    assert plan_jobs("news", 1, 0, [HERE])[0].id != plan_jobs("news", 1, 0, [HERE])[0].id


def test_a_foreign_job_belongs_to_no_run() -> None:
    assert run_of("6487ec79947edab326d6db28a2d86511e8247444") == ""


def test_without_a_redis_url_the_data_directory_is_passed_on_and_no_other_redis_used(tmp_path: Path) -> None:
    settings = job_settings(load_config({"CRAWL_DATA": str(tmp_path)}), {"CONCURRENT_REQUESTS": "2"}, [HERE])

    assert settings == {"CRAWL_DATA": str(tmp_path), "REDIS_URL": "", "CONCURRENT_REQUESTS": "2"}


def test_a_redis_for_all_is_passed_on_and_the_data_directory_is_each_servers_own() -> None:
    config = load_config({"REDIS_URL": "redis://redis.test:6379/0", "CRAWL_CONTACT": "a@example.org"})

    settings = job_settings(config, {}, [HERE, ELSEWHERE])

    assert settings == {"REDIS_URL": "redis://redis.test:6379/0"}


URLS_WITH_SECRETS = (
    "redis://:hunter2@redis.test/0",
    "redis://redis.test/0?password=hunter2",
    "redis://redis.test/0?db=1&pass%77ord=hunter2",
)
REDIS_REMEDY = "environment of each scrapyd.*REDIS_PASSWORD_FILE"


@pytest.mark.parametrize("url", URLS_WITH_SECRETS)
def test_a_password_of_redis_is_not_passed_on(url: str) -> None:
    config = load_config({"REDIS_URL": url})

    settings = job_settings(config, {"CONCURRENT_REQUESTS": "2"}, [ELSEWHERE])

    assert has_credentials(url)
    assert settings == {"CONCURRENT_REQUESTS": "2"}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        *(("REDIS_URL", url, REDIS_REMEDY) for url in URLS_WITH_SECRETS),
        (
            "REDIS_PARAMS",
            '{"db": 1, "password": "hunter2"}',
            REDIS_REMEDY,
        ),
        ("REDIS_PARAMS", '{"username": "hunter2"}', "REDIS_PASSWORD_FILE"),
        ("REDIS_PARAMS", '{"ssl_password": "hunter2"}', "REDIS_PASSWORD_FILE"),
        ("FTP_PASSWORD", "hunter2", "environment of scrapyd"),
        ("MAIL_PASS", "hunter2", "environment of scrapyd"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2", "environment of scrapyd"),
        ("MY_DATABASE", '{"host": "db.test", "password": "hunter2"}', "environment of scrapyd"),
        ("DEFAULT_REQUEST_HEADERS", '{"Authorization": "hunter2"}', "environment of scrapyd"),
        ("MY_API_KEY", "hunter2", "environment of scrapyd"),
        ("FEEDS", '{"ftp://me:hunter2@files.test/pages": {}}', "environment of scrapyd"),
    ],
)
def test_a_secret_is_refused_without_showing_it(name: str, value: str, remedy: str) -> None:
    config = load_config({"REDIS_URL": "redis://redis.test/0", name: value})

    with pytest.raises(BadArgument, match=f"-s {name} has a .*{remedy}") as refused:
        job_settings(config, {name: value}, [ELSEWHERE])

    assert "hunter2" not in str(refused.value)


def test_rules_of_the_run_are_not_passed_on_nor_taken_for_secrets() -> None:
    given = {"CRAWL_EXCLUDE": '["[?&]token=", "://me:you@"]', "CRAWL_FIELDS": '{"token": "css:b::text"}'}

    settings = job_settings(load_config({"REDIS_URL": "redis://redis.test/0"}), given, [ELSEWHERE])

    assert settings == {"REDIS_URL": "redis://redis.test/0"}


def test_options_of_redis_and_the_name_of_a_password_file_are_passed_on() -> None:
    given = {"REDIS_PARAMS": '{"db": 1}', "REDIS_PASSWORD_FILE": "/run/secrets/redis"}
    config = load_config({"REDIS_URL": "redis://redis.test/0", **given})

    settings = job_settings(config, given, [ELSEWHERE])

    assert settings == {"REDIS_URL": "redis://redis.test/0", **given}


@pytest.mark.parametrize("url", [None, "redis://127.0.0.1:6379/0", "unix:///run/redis.sock"])
def test_a_redis_of_this_machine_is_refused_when_a_server_is_elsewhere(url: str | None) -> None:
    with pytest.raises(BadArgument, match=r"http://crawler\.test:6800 is elsewhere"):
        job_settings(load_config({"REDIS_URL": url}), {}, [HERE, ELSEWHERE])
