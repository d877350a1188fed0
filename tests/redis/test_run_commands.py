"""The commands about runs, as far as they say and do things to Redis: runs, pause, resume, stop."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scrapy.settings import Settings

from crawlproj.errors import BadArgument, CrawlError, RunFinished
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs import Limits, Run, RunState
from crawlproj.runs.membership import Membership
from crawlproj.runs.record import KEYS_VERSION

Scrapy = Callable[..., Awaitable[list[str]]]


@pytest.fixture
def scrapy(client: RedisClient, redis_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scrapy:
    """Does what a command does: ``await scrapy("pause", "--run", "news")`` returns the lines it said."""

    async def do(name: str, *arguments: str) -> list[str]:
        command = importlib.import_module(f"crawlproj.commands.{name}").Command()
        values = {"REDIS_URL": redis_url, "CRAWL_DATA": str(tmp_path), "CRAWL_DRAIN_SECONDS": "0"}
        command.settings = Settings(values)
        parser = argparse.ArgumentParser(conflict_handler="resolve")
        command.add_options(parser)
        capsys.readouterr()
        await command.work([], parser.parse_args(list(arguments)))
        return capsys.readouterr().out.splitlines()

    return do


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=4, shards=2)


def far_away() -> ProcessName:
    """A process on another machine, which cannot be checked for life."""
    return replace(ProcessName.of_this(), host="elsewhere", machine="elsewhere", pid=4711)


async def hold_shard(run: Run, number: int = 0) -> ProcessName:
    process = far_away()
    await hold_name(run.client, keys.shard(run.name, number), process, 60_000)
    return process


# -- pause and resume --


async def test_pausing_says_whether_it_was_paused_before(run: Run, scrapy: Scrapy) -> None:
    await run.begin(is_first=True)

    assert await scrapy("pause") == ["run web is paused; to resume: scrapy resume --run web"]
    assert await scrapy("pause") == ["run web was already paused"]
    assert await run.state() == RunState.PAUSED


async def test_a_run_that_has_ended_cannot_be_paused(run: Run, scrapy: Scrapy) -> None:
    await run.change(RunState.STOPPED, "asked")

    with pytest.raises(BadArgument, match="Run 'web' is stopped, so it cannot become paused"):
        await scrapy("pause")


async def test_a_run_that_is_not_there_cannot_be_paused(run: Run, scrapy: Scrapy) -> None:
    with pytest.raises(BadArgument, match="no run 'news' here; there are: web"):
        await scrapy("pause", "--run", "news")


async def test_a_paused_run_with_shards_is_resumed(run: Run, scrapy: Scrapy) -> None:
    await run.change(RunState.PAUSED)
    await hold_shard(run)

    assert await scrapy("resume") == ["run web is resumed"]
    assert await run.state() == RunState.RUNNING
    assert await scrapy("resume") == ["run web was already running"]


async def test_a_paused_run_without_shards_waits_for_some_and_its_time_stands_still(
    run: Run, scrapy: Scrapy
) -> None:
    await run.change(RunState.PAUSED)

    assert await scrapy("resume") == ["run web was paused and has no shards; to resume: scrapy run --run web"]
    assert await run.state() == RunState.CREATED


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.FAILED])
async def test_a_run_that_has_ended_is_opened_and_the_command_named_that_starts_it(
    run: Run, scrapy: Scrapy, state: RunState
) -> None:
    await run.begin(is_first=True)
    await run.change(state)

    assert await scrapy("resume") == [
        f"run web was {state} and has no shards; to resume: scrapy run --run web"
    ]
    assert await run.state() == RunState.CREATED


async def test_resuming_a_run_at_its_limit_names_the_option_that_raises_it(run: Run, scrapy: Scrapy) -> None:
    await run.set_limits(Limits(pages=5))
    await run.begin(is_first=True)
    await run.change(RunState.STOPPED, "max_pages")

    [line] = await scrapy("resume", "--data", "here")

    assert line.endswith("to resume, raise it: scrapy run --run web --data here --max-pages N")


# -- stop --


async def test_stopping_a_run_without_processes_is_done_at_once(run: Run, scrapy: Scrapy) -> None:
    assert await scrapy("stop") == [
        "run web is stopped; to resume: scrapy run --run web",
        "run web has no processes left",
    ]
    run_map = await run.read_map()
    assert (run_map.state, run_map.reason) == (RunState.STOPPED, "asked")


async def test_stopping_a_run_that_has_ended_says_so_and_keeps_the_reason(run: Run, scrapy: Scrapy) -> None:
    await run.change(RunState.STOPPED, "max_pages")

    assert await scrapy("stop", "--no-wait") == ["run web was already stopped"]
    assert (await run.read_map()).reason == "max_pages"


async def test_stop_waits_until_shards_and_parsers_have_left(
    run: Run, scrapy: Scrapy, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await hold_shard(run, 3)
    queue = PageQueue(run.client, run.name)
    await queue.heartbeat("p-0", await queue.now_ms(), far_away())
    said: list[str] = []

    async def leave_when_named(words: str) -> None:
        if "shard 3" in words:
            await drop_name(run.client, keys.shard(run.name, 3), shard.instance)
        else:
            await queue.leave("p-0")

    async def sleep(seconds: float) -> None:
        await leave_when_named(said[-1])

    class Output:
        def write(self, text: str) -> None:
            if text.strip():
                said.append(text)

        def flush(self) -> None: ...

    monkeypatch.setattr(sys, "stderr", Output())
    monkeypatch.setattr("asyncio.sleep", sleep)

    lines = await scrapy("stop")

    assert lines[-1] == "run web has no processes left"
    assert said == [
        "waiting for shard 3 (process 4711 on elsewhere), parser p-0 (process 4711 on elsewhere)",
        "waiting for parser p-0 (process 4711 on elsewhere)",
    ]


async def test_stop_gives_up_waiting_naming_what_still_runs(
    run: Run, scrapy: Scrapy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hold_shard(run)
    monkeypatch.setattr("crawlproj.commands.stop._STORE_S", 0.2)

    with pytest.raises(CrawlError, match=r"Still running after .*: shard 0 \(process 4711 on elsewhere\)"):
        await scrapy("stop")


async def test_processes_that_died_are_not_waited_for(run: Run, scrapy: Scrapy) -> None:
    gone = replace(ProcessName.of_this(), started="another boot")
    await hold_name(run.client, keys.shard(run.name, 0), gone, 60_000)
    queue = PageQueue(run.client, run.name)
    await queue.heartbeat("gone-0", await queue.now_ms(), gone)
    await queue.heartbeat("silent-0", 0, far_away())

    assert (await scrapy("stop"))[-1] == "run web has no processes left"


# -- the list --


async def test_runs_are_listed_with_their_figures(run: Run, scrapy: Scrapy) -> None:
    await Run.open(run.client, "news", partitions=2)
    await Frontier(run.client, "web", 4).admit(Candidate(f"https://d{n}.test/") for n in range(1234))
    await hold_shard(run)
    await run.begin(is_first=True)

    news, web = (json.loads(line) for line in await scrapy("runs", "--json"))
    head, *rows = await scrapy("runs")

    assert (news["run"], news["state"], news["shards_alive"], news["shards"]) == ("news", "created", 0, 1)
    assert (web["state"], web["waiting"], web["shards_alive"], web["shards"]) == ("running", 1234, 1, 2)
    assert head.split() == [
        *("run", "state", "reason", "shards", "fetched", "waiting", "stored", "created", "seconds")
    ]
    assert rows[1].split()[:7] == ["web", "running", "-", "1/2", "0", "1,234", "0"]


async def test_a_run_of_another_version_is_listed_and_no_obstacle(run: Run, scrapy: Scrapy) -> None:
    await Run.open(run.client, "old", partitions=2)
    await run.client.command("HSET", keys.run_record("old"), "version", 1)
    await run.client.command("SADD", keys.runs(), "gone")

    states = {line["run"]: line["state"] for line in map(json.loads, await scrapy("runs", "--json"))}

    assert states == {"web": "created", "old": "of another version"}


async def test_a_hundred_runs_are_listed_quickly(client: RedisClient, scrapy: Scrapy) -> None:
    for number in range(100):
        await Run.open(client, f"run-{number}", partitions=64)
        await Frontier(client, f"run-{number}", 64).admit(Candidate(f"https://d{n}.test/") for n in range(64))

    began_s = time.process_time()
    lines = await scrapy("runs")

    assert len(lines) == 101
    # Processor time of this process: what others do on the machine does not matter.
    assert time.process_time() - began_s < 2


async def test_a_run_whose_processes_were_killed_is_interrupted_not_running(run: Run, scrapy: Scrapy) -> None:
    await run.begin(is_first=True)
    dead = replace(ProcessName.of_this(), pid=1, started="never")
    await hold_name(run.client, keys.shard("web", 0), dead, 60_000)
    await Membership(run, dead, 2, data="", silent_s=30).keep([], [])

    _, row, remedy = await scrapy("runs")
    status = await scrapy("status")
    await Membership(run, ProcessName.of_this(), 1, data="", silent_s=30).keep([], [])

    assert re.match(r"web +interrupted +no process left +0/2 ", row)
    assert remedy == "interrupted: its processes were killed; to resume: scrapy run --run NAME"
    assert status[0] == "run web, interrupted: no process is left; to resume: scrapy run --run web"
    assert [json.loads(line)["interrupted"] for line in await scrapy("runs", "--json")] == [False]
    assert (await scrapy("status"))[0] == "run web, running"


async def test_there_may_be_no_runs(scrapy: Scrapy) -> None:
    assert await scrapy("runs") == ["no runs"]


# -- deletion --


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """The directory of the pages of run `web`, with two files."""
    return store(tmp_path / "runs" / "web" / "pages", "a.parquet", "b.parquet")


def store(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_bytes(b"pages")
    return directory


def files_in(directory: Path) -> int:
    return sum(1 for _ in directory.glob("*"))


def fill(pages: Path) -> None:
    pages.mkdir(parents=True)
    (pages / "new.parquet").touch()


async def test_what_was_kept_of_an_earlier_run_stays_when_the_new_one_is_deleted_with_its_pages(
    run: Run, scrapy: Scrapy, pages: Path
) -> None:
    await scrapy("runs", "--delete", "web", "--yes")
    [kept] = pages.parent.parent.iterdir()
    await Run.open(run.client, "web", partitions=2)
    fill(pages)

    lines = await scrapy("runs", "--delete", "web", "--pages", "--yes")
    left = files_in(kept / "pages")
    await scrapy("runs", "--delete", kept.name, "--pages", "--yes")

    assert lines == ["deleted run web and its 1 page files"]
    assert left == 2
    assert not kept.exists()


async def test_a_finished_run_with_nothing_left_is_not_reopened(run: Run, scrapy: Scrapy) -> None:
    await run.begin(is_first=True)
    await run.end(RunState.FINISHED)

    with pytest.raises(RunFinished, match="nothing new to fetch"):
        await scrapy("resume")

    assert await run.state() == "finished"


async def test_a_run_is_deleted_and_its_pages_are_kept_out_of_the_way_of_a_new_one(
    run: Run, scrapy: Scrapy, pages: Path
) -> None:
    await Run.open(run.client, "news", partitions=2)
    (pages.parent / "logs").mkdir()
    (pages.parent / "logs" / "supervisor.log").touch()
    (pages.parent / "supervisor.lock").touch()

    lines = await scrapy("runs", "--delete", "web", "--yes")

    [kept] = pages.parent.parent.iterdir()
    assert kept.name.startswith("web.deleted-")
    assert lines == [
        "deleted run web",
        f"kept its pages in {kept / 'pages'}; to see them: scrapy pages --run {kept.name}",
        f"to delete them: scrapy runs --delete {kept.name} --pages",
    ]
    assert await Run.names(run.client) == ["news"]
    assert await run.client.command("EXISTS", keys.run_record("web")) == 0
    # No logs and no lock.
    assert [path.name for path in kept.iterdir()] == ["pages"]
    assert files_in(kept / "pages") == 2


async def test_what_deleted_runs_have_left_is_deleted_later(
    run: Run, scrapy: Scrapy, pages: Path, tmp_path: Path
) -> None:
    await scrapy("runs", "--delete", "web", "--yes")
    await Run.open(run.client, "web", partitions=4)
    store(pages, "c.parquet")
    await scrapy("runs", "--delete", "web", "--yes")

    with pytest.raises(BadArgument, match=r"no run 'web'.* To delete the 3 page files .* add --pages\.$"):
        await scrapy("runs", "--delete", "web", "--yes")
    lines = await scrapy("runs", "--delete", "web", "--yes", "--pages")

    assert lines == ["deleted what is left of run web and its 3 page files"]
    assert list((tmp_path / "runs").iterdir()) == []
    with pytest.raises(BadArgument, match="There is no run 'web'"):
        await scrapy("runs", "--delete", "web", "--yes", "--pages")


async def test_files_of_a_person_in_the_directory_of_a_run_are_not_deleted(
    run: Run, scrapy: Scrapy, pages: Path
) -> None:
    export = pages.parent / "export.csv"
    export.touch()

    await scrapy("runs", "--delete", "web", "--yes", "--pages")

    assert list(pages.parent.iterdir()) == [export]


async def test_a_run_is_deleted_with_its_pages_when_asked_for(run: Run, scrapy: Scrapy, pages: Path) -> None:
    letters = pages.with_name("deadletters")
    letters.mkdir()
    (letters / "a-1.letter").write_bytes(b"{}\n")

    lines = await scrapy("runs", "--delete", "web", "--yes", "--pages")

    assert lines == ["deleted run web and its 2 page files"]
    assert files_in(pages) == files_in(letters) == 0


async def test_a_run_of_an_earlier_release_can_be_deleted(run: Run, scrapy: Scrapy) -> None:
    await run.client.command("HSET", keys.run_record("web"), "version", KEYS_VERSION - 1)

    lines = await scrapy("runs", "--delete", "web", "--yes")

    assert lines == ["deleted run web"]
    assert await run.client.command("KEYS", "crawl:*") == []


async def test_what_its_processes_counted_is_deleted_with_a_run(
    run: Run, scrapy: Scrapy, tmp_path: Path
) -> None:
    counted = tmp_path / "runs" / "web" / "metrics" / "host"
    counted.mkdir(parents=True)
    (counted / "shard-0.json").write_text("{}")

    await scrapy("runs", "--delete", "web", "--yes")

    assert not counted.parent.exists()


async def test_a_run_in_use_is_not_deleted(run: Run, scrapy: Scrapy) -> None:
    await hold_shard(run)

    with pytest.raises(
        BadArgument, match=r"in use: shard 0 \(process 4711 on elsewhere\).*scrapy stop --run"
    ):
        await scrapy("runs", "--delete", "web", "--yes")

    assert await Run.names(run.client) == ["web"]


async def test_nothing_is_deleted_without_a_terminal_to_confirm(
    run: Run, scrapy: Scrapy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)

    with pytest.raises(BadArgument, match=r"Cannot ask for confirmation .* Add --yes"):
        await scrapy("runs", "--delete", "web")

    assert await Run.names(run.client) == ["web"]


@pytest.mark.parametrize("answer", ["", "y", "news", "Web"])
async def test_a_wrong_answer_deletes_nothing(
    run: Run, scrapy: Scrapy, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)

    with pytest.raises(BadArgument, match="nothing was deleted"):
        await scrapy("runs", "--delete", "web")

    assert await Run.names(run.client) == ["web"]


async def test_the_name_typed_at_the_terminal_deletes_the_run(
    run: Run, scrapy: Scrapy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "web"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)

    await scrapy("runs", "--delete", "web")

    assert asked == ["This deletes run web for good. Type the run's name to confirm: "]
    assert await Run.names(run.client) == []


@pytest.mark.parametrize("arguments", [("--yes",), ("--pages",), ("--run", "web")])
async def test_options_that_would_be_ignored_are_refused(
    run: Run, scrapy: Scrapy, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(BadArgument, match=r"scrapy (runs|status)"):
        await scrapy("runs", *arguments)
