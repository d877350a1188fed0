"""What a person reads when something is wrong: one line with what and how to mend it, and an exit code."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from scrapy.cmdline import execute

from crawlproj.console import register_with_scrapy
from crawlproj.errors import (
    EXIT_NO_SEEDS,
    EXIT_OK,
    EXIT_REDIS,
    EXIT_RUN_MISMATCH,
    EXIT_SHARD_TAKEN,
    EXIT_STORE,
    EXIT_USAGE,
)
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, RunState
from crawlproj.runs.record import KEYS_VERSION
from tests.e2e.conftest import error_lines
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
SECRET = "hunter2"


@dataclass(frozen=True)
class Mistake:
    """What was typed, the exit code, and what must be said. {names} stand for what `places` makes."""

    typed: str
    code: int
    says: str
    settings: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.typed, *(f"{name}={value}" for name, value in self.settings.items())])


@pytest.fixture
def places(
    tmp_path: Path,
    empty_redis_url: str,
    redis_server_factory: Callable[..., Any],
    ports: HeldPorts,
    request: pytest.FixtureRequest,
) -> dict[str, str]:
    """Names for what the mistakes are made with."""
    (tmp_path / "empty.txt").write_text("\n# nothing here\n")
    (tmp_path / "garbage.txt").write_text("no url\nhttp://\n")
    (tmp_path / "file").write_text("not a directory")
    named = {
        "empty": str(tmp_path / "empty.txt"),
        "garbage": str(tmp_path / "garbage.txt"),
        "missing": str(tmp_path / "missing.txt"),
        "file": str(tmp_path / "file"),
        "nobody": f"redis://127.0.0.1:{ports.hold()}/0",
        "no_socket": f"unix://{tmp_path}/nothing.sock",
    }
    if "{locked}" in str(request.node.callspec.params["mistake"]):
        named["locked"] = redis_server_factory("--requirepass", SECRET).url
    return named


#: Without it nothing public is fetched, and what would be asked of Redis does not matter.
CONTACT = {"CRAWL_CONTACT": "me@example.org"}

CRAWLS = [
    Mistake("", EXIT_REDIS, r"127\.0\.0\.1:\d+ did not answer .*REDIS_URL", {"REDIS_URL": "{nobody}"}),
    Mistake("", EXIT_REDIS, r"nothing\.sock did not answer .*REDIS_URL", {"REDIS_URL": "{no_socket}"}),
    Mistake("", EXIT_REDIS, "password", {"REDIS_URL": "{locked}?password=wrong"}),
    Mistake("-ashard=2 -ashards=2", EXIT_USAGE, "shard=2 is out of range: with -a shards=2 it is 0 to 1"),
    Mistake("-ashard=7", EXIT_USAGE, "Shard 7 is out of range: the shards of run 'web' .* -a shards=8$"),
    Mistake("-ashard=abc", EXIT_USAGE, "-a shard=abc is not a whole number"),
    Mistake("-arun=a/b", EXIT_USAGE, "'a/b' is not a valid run name; use 1 to 64 letters"),
    Mistake("-asede=x", EXIT_USAGE, "Unknown argument -a sede. Did you mean -a seeds?"),
    Mistake(
        "",
        EXIT_USAGE,
        "Unknown setting CRAWL_PARTITION. Did you mean CRAWL_PARTITIONS?",
        {"CRAWL_PARTITION": "8"},
    ),
    Mistake("", EXIT_USAGE, "CRAWL_CHAIN='long' is not a valid int. Give an int", {"CRAWL_CHAIN": "long"}),
    Mistake("-aseeds={empty}", EXIT_NO_SEEDS, "empty.txt' has no valid seed"),
    Mistake("-aseeds={missing}", EXIT_NO_SEEDS, "Cannot read the seeds file .*missing.txt"),
    Mistake(
        "",
        EXIT_USAGE,
        "CRAWL_CONTACT is not set: .* -s CRAWL_CONTACT=you@example.org",
        {"CRAWL_ALLOW_ADDRESSES": ""},
    ),
    Mistake(
        "",
        EXIT_USAGE,
        "the unknown field 'dely'. Did you mean 'delay'",
        {"DOWNLOAD_SLOTS": '{{"a.org": {{"dely": 3}}}}'},
    ),
    Mistake(
        "",
        EXIT_REDIS,
        "Cannot keep Redis data in .*/file/data.* Choose another data directory",
        {"REDIS_URL": "", "CRAWL_DATA": "{file}/data"},
    ),
]


@pytest.mark.parametrize("mistake", CRAWLS, ids=str)
def test_a_shard_that_cannot_start_says_why_in_one_line_and_creates_no_run(
    scrapy: Callable[..., Any],
    ask: Callable[..., Any],
    empty_redis_url: str,
    places: dict[str, str],
    mistake: Mistake,
) -> None:
    settings = {name: value.format(**places) for name, value in mistake.settings.items()}
    environment = {name: settings.pop(name) for name in ("REDIS_URL",) if name in settings}

    shard = scrapy(
        "crawl", "web", *mistake.typed.format(**places).split(), environment=environment, **settings
    )
    code = shard.wait()

    assert code == mistake.code, shard.log
    [line] = error_lines(shard.log)
    assert re.search(mistake.says, line)
    assert "Traceback" not in shard.log
    assert "Unhandled" not in shard.log
    assert SECRET not in shard.log
    assert "wrong" not in line
    assert ask(empty_redis_url, "SCARD", keys.runs()) == 0


COMMANDS = [
    *(
        Mistake(command, EXIT_REDIS, "did not answer", {"REDIS_URL": "{nobody}"} | CONTACT)
        for command in ("status", "shards 2", "seed http://a.example/", "run http://a.example/")
    ),
    Mistake("status", EXIT_REDIS, "password", {"REDIS_URL": "{locked}?password=wrong"}),
    *(
        Mistake(f"{command} --run a/b", EXIT_USAGE, "'a/b' is not a valid run name")
        for command in ("status", "shards 2", "seed http://a.example/", "run http://a.example/")
    ),
    *(
        Mistake(command, EXIT_USAGE, "Did you mean CRAWL_CHAIN", {"CRAWL_CHAINS": "3"} | CONTACT)
        for command in ("status", "shards 2", "seed http://a.example/", "run http://a.example/")
    ),
    *(
        Mistake(
            f"{command} --bogus",
            EXIT_USAGE,
            f"unknown argument '--bogus'; see: scrapy {command.split()[0]} -h",
        )
        for command in ("status", "shards 2", "seed x", "run", "parser")
    ),
    Mistake("status extra", EXIT_USAGE, "unknown argument 'extra'"),
    Mistake("parked", EXIT_REDIS, "did not answer", {"REDIS_URL": "{nobody}"}),
    Mistake("parked --run nope", EXIT_USAGE, "There is no run 'nope' here"),
    Mistake("parked extra", EXIT_USAGE, "unknown argument 'extra'; see: scrapy parked -h"),
    Mistake("parked --release", EXIT_USAGE, "--release needs --domain D, --reason R, or --all"),
    Mistake("parked --reason lost", EXIT_USAGE, "'lost'; use one of: failures, .*trap_variants"),
    Mistake("parked --all", EXIT_USAGE, "--all is only for --release"),
    Mistake("parked --release --all --domain a.test", EXIT_USAGE, "--all cannot be combined"),
    Mistake("parked --limit 0", EXIT_USAGE, "--limit 0: must be at least 1"),
    Mistake("parked --domain http://", EXIT_USAGE, "'http://' is not a domain; expected .*example.org"),
    Mistake("status", EXIT_USAGE, "There is no run 'web' here; there are: none"),
    Mistake("status --run nope", EXIT_USAGE, "There is no run 'nope' here"),
    Mistake("shards 2", EXIT_USAGE, "There is no run 'web' here"),
    Mistake("shards two", EXIT_USAGE, "'two' is not a number of shards"),
    Mistake("shards", EXIT_USAGE, "is not a number of shards"),
    Mistake("seed", EXIT_NO_SEEDS, "Give a seeds file"),
    Mistake("seed {empty}", EXIT_NO_SEEDS, "No valid seeds in .*empty.txt"),
    Mistake(
        "seed http://a.example/ --run nope", EXIT_USAGE, "no run 'nope' here; there are: none. .*--create$"
    ),
    Mistake("seed {missing}", EXIT_NO_SEEDS, "Cannot read the seeds file .*missing.txt"),
    Mistake("run", EXIT_NO_SEEDS, "Run 'web' has no seeds. Add some: scrapy run FILE-OR-URL"),
    Mistake("run {empty}", EXIT_NO_SEEDS, "No valid seeds in .*empty.txt", CONTACT),
    Mistake("run {missing}", EXIT_NO_SEEDS, "Cannot read the seeds file .*missing.txt", CONTACT),
    Mistake("run wiki", EXIT_NO_SEEDS, "'wiki': No such file .* write http://wiki$", CONTACT),
    Mistake("run http://a.example/", EXIT_USAGE, "CRAWL_CONTACT is not set: .*=you@example.org$"),
    Mistake("run http://10.0.0.1/", EXIT_NO_SEEDS, "is private .* CRAWL_ALLOW_ADDRESSES"),
    Mistake("run http://a.example:22/", EXIT_NO_SEEDS, "port 22 is not for web pages", CONTACT),
    Mistake(
        "run http://a.example/",
        EXIT_USAGE,
        "the unknown field 'dely'. Did you mean 'delay'",
        {"DOWNLOAD_SLOTS": '{{"a.org": {{"dely": 3}}}}'} | CONTACT,
    ),
    Mistake(
        "run http://a.example/",
        EXIT_USAGE,
        "not a valid dict of dicts .*, such as .*delay",
        {"DOWNLOAD_SLOTS": "soon"} | CONTACT,
    ),
    Mistake(
        "run http://a.example/",
        EXIT_USAGE,
        r"CRAWL_FIELDS\['price'\]='.price' is not a selector. Write 'css:",
        {"CRAWL_FIELDS": '{{"price": ".price"}}'} | CONTACT,
    ),
    Mistake(
        "run http://a.example/",
        EXIT_USAGE,
        "CRAWL_METRICS_HOST='203.0.113.1': metrics cannot be served there",
        {"CRAWL_METRICS_HOST": "203.0.113.1", "CRAWL_METRICS_PORT": "9100"} | CONTACT,
    ),
    Mistake(
        "run http://a.example/",
        EXIT_STORE,
        "Cannot write to .*/file/runs/web: .*/file is not a directory. Move it away, or choose another",
        {"CRAWL_DATA": "{file}"} | CONTACT,
    ),
    Mistake(
        "run http://a.example/",
        EXIT_STORE,
        "Cannot write to /proc/runs/web: .* Choose another directory with --data",
        {"CRAWL_DATA": "/proc"} | CONTACT,
    ),
    Mistake("run http://a.example/ --shards 0", EXIT_USAGE, "--shards 0: must be a whole number, at least 1"),
    Mistake("run http://a.example/ --shards 65", EXIT_USAGE, "--shards 65: at most 64", CONTACT),
    Mistake("run http://a.example/ --simweb 3", EXIT_USAGE, "--simweb has its own seeds"),
    Mistake(
        "seed http://a.example/",
        EXIT_STORE,
        "choose another directory with --data",
        {"REDIS_URL": "", "CRAWL_DATA": "{file}/data"},
    ),
    Mistake(
        "status", EXIT_USAGE, "There is no crawl in '.*nowhere'", {"REDIS_URL": "", "CRAWL_DATA": "nowhere"}
    ),
    Mistake("shards 2", EXIT_USAGE, "There is no crawl in", {"REDIS_URL": "", "CRAWL_DATA": "nowhere"}),
    # Before any server is asked.
    Mistake(
        "launch --scrapyd http://127.0.0.1:1 http://a.example/",
        EXIT_USAGE,
        "-s REDIS_PARAMS has a secret, and scrapyd shows .* REDIS_PASSWORD_FILE",
        {"REDIS_PARAMS": f'{{{{"password": "{SECRET}"}}}}'},
    ),
    Mistake(
        "launch --scrapyd http://127.0.0.1:1 --max-pages many http://a.example/",
        EXIT_USAGE,
        "--max-pages many: must be a whole number",
    ),
]


@pytest.mark.parametrize("mistake", COMMANDS, ids=str)
def test_a_command_that_cannot_do_it_says_why_in_one_line(
    command: Callable[..., tuple[int, str, str]],
    empty_redis_url: str,
    places: dict[str, str],
    tmp_path: Path,
    mistake: Mistake,
) -> None:
    settings = {"REDIS_URL": empty_redis_url, "CRAWL_DATA": str(tmp_path / "data")}
    settings |= {name: value.format(**places) for name, value in mistake.settings.items()}

    code, out, err = command(*mistake.typed.format(**places).split(), **settings)

    assert code == mistake.code, out + err
    [line] = [line for line in (out + err).splitlines() if line.startswith("scrapy ") or "error:" in line]
    assert re.search(mistake.says, line)
    assert "Traceback" not in out + err
    assert SECRET not in out + err


def test_a_setting_that_nothing_knows_is_said_to_be_close_to_another(
    command: Callable[..., tuple[int, str, str]], empty_redis_url: str, tmp_path: Path
) -> None:
    known = {
        "REDIS_URL": empty_redis_url,
        "CRAWL_DATA": str(tmp_path / "data"),
        "CRAWL_CONTACT": "me@example.org",
    }

    _, _, err = command("run", "nosuch.txt", **known, DOWNLOAD_DELY="3", MY_OWN="1", DOWNLOAD_DELAY="3")

    said = [line for line in err.splitlines() if "Did you mean" in line]
    assert said == ["scrapy run: Unknown setting DOWNLOAD_DELY. Did you mean DOWNLOAD_DELAY?"]


@pytest.mark.parametrize(
    "mistake", [Mistake("parser", EXIT_REDIS, "did not answer", {"REDIS_URL": "{no_socket}"})], ids=str
)
def test_a_parser_that_cannot_start_says_why_in_one_line(
    scrapy: Callable[..., Any], places: dict[str, str], mistake: Mistake
) -> None:
    environment = {name: value.format(**places) for name, value in mistake.settings.items()}

    parser = scrapy("parser", environment=environment)
    code = parser.wait()

    assert code == mistake.code, parser.log
    [line] = [line for line in parser.log.splitlines() if line.startswith("scrapy parser: ")]
    assert re.search(mistake.says, line)
    assert "Traceback" not in parser.log


GARBAGE = "http://a.example/\nno url\n# a comment\n\nftp://b.example/\nc.example.org\n"


@pytest.mark.parametrize("name", ["seed", "run"])
def test_one_invalid_seed_and_nothing_is_made(
    command: Callable[..., tuple[int, str, str]],
    ask: Callable[..., Any],
    empty_redis_url: str,
    tmp_path: Path,
    name: str,
) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(GARBAGE)
    settings = {"REDIS_URL": empty_redis_url, "CRAWL_DATA": str(tmp_path / "data")} | CONTACT

    code, _, err = command(name, str(seeds), str(tmp_path / "missing"), "http://d.example/", **settings)

    assert code == EXIT_USAGE
    assert re.findall(r"line (\d+): ", err) == ["2", "5"]
    assert "Cannot read the seeds file" in err
    assert ask(empty_redis_url, "DBSIZE") == 0
    assert not (tmp_path / "data").exists()


def test_invalid_seeds_are_left_out_on_request(
    command: Callable[..., tuple[int, str, str]], empty_redis_url: str, tmp_path: Path
) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(GARBAGE)

    code, out, err = command("seed", str(seeds), "--skip-invalid", "--create", REDIS_URL=empty_redis_url)

    assert code == EXIT_OK
    assert re.findall(r"line (\d+): ", err) == ["2", "5"]
    assert out == "run web: 2 new seeds of 2; 2 invalid ones were skipped\n"


def test_all_problems_are_on_one_screen(
    command: Callable[..., tuple[int, str, str]],
    ask: Callable[..., Any],
    empty_redis_url: str,
    ports: HeldPorts,
    tmp_path: Path,
) -> None:
    (tmp_path / "data").write_text("a file")
    (tmp_path / "seeds.txt").write_text("no url\n" * 1000 + "http://10.0.0.1/\nhttp://a.example/\n")

    code, out, err = command(
        "run",
        str(tmp_path / "seeds.txt"),
        REDIS_URL=f"redis://127.0.0.1:{ports.hold()}/0",
        CRAWL_DATA=str(tmp_path / "data"),
        CRAWL_CHAIN="long",
        CRAWL_EXCLUDE="(",
        CRAWL_SCOPE_DOMAINS="*",
    )

    assert (code, out) == (EXIT_USAGE, "")
    first, *lines = err.splitlines()
    assert re.fullmatch(r"scrapy run: \d+ problems; nothing was started\.", first)
    assert len(lines) < 24
    for words in (
        "CRAWL_CHAIN='long'",
        "CRAWL_EXCLUDE has '('",
        "CRAWL_SCOPE_DOMAINS has '*'",
        "CRAWL_CONTACT is not set",
        "seeds.txt, line 1: 'no url' is not a URL",
        "... and 986 more invalid seeds.",
        "/data is not a directory",
        "did not answer",
    ):
        assert words in err


def test_a_run_created_with_other_partitions_is_refused_naming_both(
    command: Callable[..., tuple[int, str, str]],
    scrapy: Callable[..., Any],
    empty_redis_url: str,
    tmp_path: Path,
) -> None:
    settings = {"REDIS_URL": empty_redis_url, "CRAWL_DATA": str(tmp_path)}
    assert command("seed", "--create", "http://a.example/", **settings, CRAWL_PARTITIONS="8")[0] == EXIT_OK

    shard = scrapy("crawl", "web", CRAWL_PARTITIONS="16")
    seed_code, _, seed_error = command("seed", "http://b.example/", **settings, CRAWL_PARTITIONS="16")
    shard_code = shard.wait()

    says = "Run 'web' was created with CRAWL_PARTITIONS=8, not 16. Set CRAWL_PARTITIONS=8, or use another"
    assert (shard_code, seed_code) == (EXIT_RUN_MISMATCH, EXIT_RUN_MISMATCH)
    [line] = error_lines(shard.log)
    assert says in line
    assert says in seed_error
    assert "Traceback" not in shard.log


def test_a_run_of_an_earlier_release_is_refused_until_it_is_deleted(
    command: Callable[..., tuple[int, str, str]],
    scrapy: Callable[..., Any],
    ask: Callable[..., Any],
    empty_redis_url: str,
    tmp_path: Path,
) -> None:
    settings = {"REDIS_URL": empty_redis_url, "CRAWL_DATA": str(tmp_path)} | CONTACT
    assert command("seed", "--create", "http://a.example/", **settings)[0] == EXIT_OK
    ask(empty_redis_url, "HSET", keys.run_record("web"), "version", KEYS_VERSION - 1)

    # A parser forks: not out of this process, where other tests have left threads.
    shard, parser = scrapy("crawl", "web"), scrapy("parser")
    typed = [("run",), ("status",), ("seed", "http://b.example/")]
    refused = [command(*words, **settings) for words in typed]

    says = "Run 'web' was created by an earlier release"
    assert [shard.wait(), parser.wait()] == [EXIT_RUN_MISMATCH] * 2
    assert says in shard.log
    assert says in parser.log
    assert [code for code, _, _ in refused] == [EXIT_RUN_MISMATCH] * len(typed)
    assert all(says in err for _, _, err in refused)
    [remedy] = {re.findall(r"scrapy (runs --delete web)", err)[0] for _, _, err in refused}
    assert command(*remedy.split(), "--yes", **settings)[0] == EXIT_OK
    assert command("seed", "--create", "http://b.example/", **settings)[0] == EXIT_OK


def test_a_shard_number_in_use_is_refused_naming_its_process_which_continues(
    scrapy: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    first = scrapy("crawl", "web")
    wait_for(lambda: first.says("opened run"), "the first shard runs")

    second = scrapy("crawl", "web")
    code = second.wait()

    assert code == EXIT_SHARD_TAKEN, second.log
    [line] = error_lines(second.log)
    assert (
        f"Shard 0 of run 'web' is already running on {socket.gethostname()}, process {first.process.pid}."
        in line
    )
    assert "Traceback" not in second.log
    assert first.is_running
    first.send(signal.SIGTERM)
    assert first.wait() == EXIT_OK, first.log
    assert error_lines(first.log) == []


def test_a_crawl_with_garbage_among_its_seeds_reports_each_and_completes(
    scrapy: Callable[..., Any], echo: Any, tmp_path: Path
) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(f"{echo.url}/one\nno url\nhttp://[::1\n\n{echo.url}/two\n")

    shard = scrapy("crawl", "web", f"-aseeds={seeds}")
    parser = scrapy("parser")
    codes = shard.wait(), parser.wait()

    assert codes == (EXIT_OK, EXIT_OK), shard.log
    assert [re.findall(r"line (\d+)", line) for line in error_lines(shard.log)] == [["2"], ["3"]]
    assert sorted(seen.path for seen in echo.log) == ["/one", "/robots.txt", "/two"]


@pytest.fixture
def set_aside(empty_redis_url: str) -> dict[str, str]:
    """Settings of a run stopped, with a URL waiting; two domains parked, two URLs kept as traps."""

    async def make() -> None:
        client = await RedisClient.open(url=empty_redis_url, data_dir=Path())
        try:
            run = await Run.open(client, "web", partitions=1)
            frontier = Frontier(client, "web", 1)
            hold = await frontier.acquire(0, "me", ttl_ms=1000, delay_ms=0, delays_ms={})
            assert hold is not None
            await frontier.admit([Candidate("http://odd.test/2030/01")])
            [lease], _ = await frontier.lease([(hold, 1)], chain=1, chain_ms=0)
            await frontier.settle([Settlement(lease, Outcome.TRAPPED, "trap_shape")])
            await frontier.trap({"http://odd.test/x/x/x/x": (2, "trap_repeat")})
            await frontier.admit(
                Candidate(f"http://{name}.test/{path}") for name in ("dead", "big") for path in "ab"
            )
            await frontier.park(hold, [("dead.test", "failures", 3_600_000), ("big.test", "byte_budget", -1)])
            await frontier.admit([Candidate("http://fine.test/")])
            await client.command(
                "HSET", keys.page_counters("web"), "filtered:scope", 1200, "filtered:depth", 3
            )
            await run.change(RunState.RUNNING)
            await run.change(RunState.STOPPED, "max_pages")
        finally:
            await client.close()

    asyncio.run(make())
    return {"REDIS_URL": empty_redis_url, "CRAWL_PARTITIONS": "1"}


def test_what_is_parked_is_a_table_for_people(
    command: Callable[..., tuple[int, str, str]], set_aside: dict[str, str]
) -> None:
    code, out, err = command("parked", **set_aside)

    assert (code, err) == (EXIT_OK, "")
    lines = out.splitlines()
    assert lines[0] == "run web: 2 domains parked, 2 URLs trapped"
    assert re.fullmatch(r"domain +reason +URLs  failures  retry", lines[2])
    assert re.fullmatch(r"dead\.test +failures +2 +0  in 59 min", lines[3])
    assert re.fullmatch(r"big\.test +byte_budget +2 +0  never", lines[4])
    assert {line.split()[0]: line.split()[-1] for line in lines[7:]} == {
        "trap_shape": "http://odd.test/2030/01",
        "trap_repeat": "http://odd.test/x/x/x/x",
    }


def test_a_long_list_is_cut_and_says_how_many_more_there_are(
    command: Callable[..., tuple[int, str, str]], set_aside: dict[str, str]
) -> None:
    code, out, _ = command("parked", "--limit", "1", **set_aside)

    assert code == EXIT_OK
    assert out.count("... and 1 more; use --limit N") == 2
    assert "big.test" not in out


def test_what_is_parked_is_one_json_object_for_programs(
    command: Callable[..., tuple[int, str, str]], set_aside: dict[str, str], json_of: Callable[[str], Any]
) -> None:
    code, out, _ = command("parked", "--json", "--domain", "www.big.test", **set_aside)

    assert code == EXIT_OK
    assert json_of(out) == {
        "run": "web",
        "domains_total": 1,
        "domains": [
            {"domain": "big.test", "reason": "byte_budget", "urls": 2, "failures": 0, "back_ms": None}
        ],
        "urls_total": 0,
        "urls": [],
    }


def test_released_urls_wait_again_and_an_ended_run_is_reopened(
    command: Callable[..., tuple[int, str, str]], set_aside: dict[str, str], json_of: Callable[[str], Any]
) -> None:
    code, out, _ = command("parked", "--release", "--all", **set_aside)

    assert (code, out) == (EXIT_OK, "run web: 2 domains and 2 trapped URLs released\n")
    status = json_of(command("status", "--json", **set_aside)[1])
    assert {
        name: status[name] for name in ("state", "waiting", "parked", "parked_domains", "trapped_kept")
    } == {
        "state": "created",
        "waiting": 7,
        "parked": 0,
        "parked_domains": 0,
        "trapped_kept": 0,
    }


def test_an_ended_run_stays_so_when_nothing_was_released(
    command: Callable[..., tuple[int, str, str]], set_aside: dict[str, str], json_of: Callable[[str], Any]
) -> None:
    code, out, _ = command("parked", "--release", "--domain", "fine.test", **set_aside)

    assert (code, out) == (EXIT_OK, "run web: 0 domains and 0 trapped URLs released\n")
    assert json_of(command("status", "--json", **set_aside)[1])["state"] == "stopped"


def test_a_paused_run_stays_paused_whatever_is_released(
    command: Callable[..., tuple[int, str, str]],
    ask: Callable[..., Any],
    set_aside: dict[str, str],
    json_of: Callable[[str], Any],
) -> None:
    ask(set_aside["REDIS_URL"], "HSET", keys.run_record("web"), "state", "paused")

    code, out, _ = command("parked", "--release", "--reason", "failures", "--json", **set_aside)

    assert (code, json_of(out)) == (EXIT_OK, {"run": "web", "domains_released": 1, "urls_released": 0})
    assert json_of(command("status", "--json", **set_aside)[1])["state"] == "paused"


def test_the_status_shows_outcomes_by_reason_and_what_is_parked(
    command: Callable[..., tuple[int, str, str]], set_aside: dict[str, str]
) -> None:
    code, out, err = command("status", **set_aside)

    assert (code, err) == (EXIT_OK, "")
    assert out.startswith("run web, stopped: max_pages\nshards alive: none, of 1\n")
    figures = [(name.strip(), count) for name, count in re.findall(r"^  (.*?) +([\d,]+)$", out, re.MULTILINE)]
    for expected in (
        [("trapped", "1"), ("trap_shape", "1"), ("retried", "0")],
        [("domains parked", "2"), ("URLs of parked domains", "4"), ("URLs trapped", "2")],
        [("scope", "1,200"), ("depth", "3"), ("stored", "0")],
    ):
        at = figures.index(expected[0])
        assert figures[at : at + len(expected)] == expected


def test_a_command_whose_reader_has_seen_enough_ends_quietly(
    command: Callable[..., tuple[int, str, str]], empty_redis_url: str, tmp_path: Path
) -> None:
    settings = {"REDIS_URL": empty_redis_url, "CRAWL_DATA": str(tmp_path)}
    assert command("seed", "--create", "http://a.example/", **settings)[0] == EXIT_OK
    readable, writable = os.pipe()
    os.close(readable)

    status = subprocess.run(
        [sys.executable, "-m", "scrapy.cmdline", "status", f"--set=REDIS_URL={empty_redis_url}"],
        cwd=PROJECT,
        stdout=writable,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writable)

    assert (status.returncode, status.stderr) == (128 + signal.SIGPIPE, "")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs a command of ours in this process, which needs no reactor: exit code, output, errors."""
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "crawlproj.settings")
    # Done when Scrapy loads them, unless another test has loaded them before it.
    register_with_scrapy()

    def run(*typed: str, **settings: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            execute(["scrapy", *typed, *(f"--set={name}={value}" for name, value in settings.items())])
        out, err = capfd.readouterr()
        return int(left.value.code or 0), out, err

    before = dict(os.environ)
    yield run
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
