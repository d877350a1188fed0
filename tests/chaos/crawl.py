"""The crawl under torment: a simulated web with faults, and `scrapy run` as an operator would use it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

from crawlproj.errors import EXIT_REDIS, EXIT_SHARD_TAKEN
from crawlproj.model.run import RunPaths
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec
from tests.chaos.offspring import descendants, die_with_parent
from tests.processes import PARSER, SHARD, title_of

PROJECT = Path(__file__).parents[2]
RUN = "chaos"
SHARDS, PARSERS = 4, 4
DELAY_S = 0.2
#: How long a shard holds its number and partitions without renewal.
LEASE_S = 4
_PAGES_PER_DOMAIN = 60
#: Minutes of a real crawl in seconds. No domain is given up, and no chain of redirects is too long, so that
#: every page is expected, in whichever order it is found.
_SETTINGS = {
    "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
    "CRAWL_SCOPE": "everything",
    "DOWNLOAD_DELAY": str(DELAY_S),
    "DOWNLOAD_TIMEOUT": "5",
    "CRAWL_SHARD_LEASE_SECONDS": str(LEASE_S),
    "CRAWL_BACKOFF_SECONDS": "0.3",
    "CRAWL_MAX_BACKOFF_SECONDS": "5",
    "CRAWL_GIVE_UP_FAILURES": "0",
    "CRAWL_MAX_REDIRECTS": "50",
    "CRAWL_DRAIN_SECONDS": "3",
    "CRAWL_SEGMENT_SECONDS": "2",
    "CRAWL_LOG": "text",
}
_COMMAND_S = 60.0
#: What a supervisor says when it has begun. One that meets no Redis before that says so; whoever started it
#: tries again.
_BEGUN = f"run {RUN}: "


def world_of(seed: int, pages: int) -> WorldSpec:
    """Return a web of about *pages* pages with every fault that leaves no choice to the crawler."""
    per_domain = min(_PAGES_PER_DOMAIN, max(10, pages // 60))
    return WorldSpec.rough(
        seed=seed,
        domains=max(4, round(pages / per_domain)),
        pages_per_domain=per_domain,
        size_spread=0.5,
        page_bytes=2000,
        latency_ms=5,
        error_500_share=0.02,
        throttle_share=0.01,
        slow_share=0.02,
        hang_share=0.001,
        drop_share=0.02,
        truncate_share=0.02,
        huge_share=0.0,
        # A page that is always refused is asked for as long as the run lasts; these all answer in the end.
        permanent_share=0.0,
    )


class Crawl:
    """One run in *folder*. `supervise` keeps its supervisor running until the run has ended."""

    def __init__(
        self, folder: Path, data: Path, simweb: SimwebProcess, redis_url: str, shim: dict[str, str]
    ) -> None:
        self.paths = RunPaths(data, RUN)
        self.simweb = simweb
        self.folder = folder
        self._environment = os.environ | shim | {"REDIS_URL": redis_url}
        self._controls = Path(shim["CHAOS_CONTROL"]).parent if shim else None
        self._settings = [f"--set={name}={value}" for name, value in _SETTINGS.items()]
        self._settings.append(f"--set=CRAWL_DATA={data}")
        self._seeds = folder / "seeds.txt"
        self._seeds.write_text("".join(f"{url}\n" for url in simweb.seeds()))
        self._log_end = 0
        self.requests = 0
        self._supervisor: subprocess.Popen[bytes] | None = None
        #: Set while the tormentor keeps it dead.
        self.keep_dead = False
        #: Until when shards of a supervisor that joined may be alive. If the first one was killed, it is
        #: refused until then, and started again, as systemd would do.
        self.joined_until_s = 0.0
        #: Times the supervisor ended without having been killed, before the run had.
        self.gave_up: list[str] = []

    # -- the supervisor --

    def start(self) -> None:
        self._started_s, self._words_before = time.monotonic(), len(self._output("supervisor"))
        self._supervisor = self.scrapy(
            *("run", str(self._seeds), "--run", RUN, "--json"),
            *("--shards", str(SHARDS), "--parsers", f"{PARSERS}..{PARSERS}"),
            log="supervisor",
        )

    @property
    def supervisor(self) -> int | None:
        """Its process id, while it runs."""
        process = self._supervisor
        return process.pid if process is not None and process.poll() is None else None

    def kill_supervisor(self) -> None:
        """Kill it; `start` is up to the caller."""
        self.keep_dead = True
        if self._supervisor is not None:
            self._supervisor.kill()
            self._supervisor.wait()

    async def supervise(self) -> str:
        """Start the supervisor again whenever it gives up; returns the state of the run when it is over."""
        while True:
            await asyncio.sleep(0.1)
            if self.keep_dead or self._supervisor is None or (code := self._supervisor.poll()) is None:
                continue
            state = self._last_state()
            if code == 0 and state:
                return state
            has_begun = _BEGUN in self._output("supervisor")[self._words_before :]
            has_no_redis = code == EXIT_REDIS and not has_begun
            is_refused = code == EXIT_SHARD_TAKEN and self._started_s < self.joined_until_s
            if has_no_redis or is_refused:
                await asyncio.sleep(1)
                self.start()
                continue
            self.gave_up.append(f"supervisor ended with {code}: {self._last_words()}")
            if len(self.gave_up) >= 8:
                return f"given up: {self.gave_up[-1]}"
            await asyncio.sleep(1)
            self.start()

    def _last_state(self) -> str:
        summaries = re.findall(r"^\{.*\}$", self._output("supervisor"), re.MULTILINE)
        return str(json.loads(summaries[-1]).get("state", "")) if summaries else ""

    def _last_words(self) -> str:
        lines = [
            line for line in self._output("supervisor").splitlines() if line and not line.startswith("{")
        ]
        return " / ".join(lines[-2:])

    def _output(self, log: str) -> str:
        path = self.folder / f"{log}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- processes and commands --

    def scrapy(self, *arguments: str, log: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.out").open("ab") as out:
            return subprocess.Popen(
                [*prefix, sys.executable, "-m", "scrapy.cmdline", *arguments, *self._settings],
                cwd=PROJECT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # there are no threads
                start_new_session=True,
            )

    async def command(self, *arguments: str) -> bool:
        """Run a command until it succeeds, as an operator would while Redis is unreachable."""
        for _ in range(20):
            process = self.scrapy(*arguments, "--run", RUN, log="commands")
            try:
                async with asyncio.timeout(_COMMAND_S):
                    while (code := process.poll()) is None:  # noqa: ASYNC110  # nobody notifies us
                        await asyncio.sleep(0.05)
            except TimeoutError:
                process.kill()
                code = process.wait()
            if code == 0:
                return True
            await asyncio.sleep(0.5)
        return False

    def processes(self, title: str) -> list[int]:
        """Return the shards or parsers that are running, whoever started them."""
        found = []
        for pid in descendants():
            try:
                if title_of(Path(f"/proc/{pid}")).startswith(title):
                    found.append(pid)
            except OSError:
                continue
        return found

    def left_behind(self) -> list[int]:
        return [*self.processes(SHARD), *self.processes(PARSER)]

    def step_clock(self, pid: int, offset_s: float) -> None:
        """Set the wall clock of one process off by so much."""
        if self._controls is not None and (control := self._controls / str(pid)).exists():
            with control.open("r+b") as file:
                file.write(struct.pack("=q", int(offset_s * 1000)))

    # -- progress --

    def read_progress(self) -> int:
        """Return how many requests the web has answered so far."""
        with self.simweb.log_path.open("rb") as log:
            log.seek(self._log_end)
            new = log.read()
        self._log_end += len(new)
        self.requests += new.count(b"\n")
        return self.requests
