"""A scrapyd server as a process, and a client of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from tests.ports import HeldPorts

open_url = build_opener(ProxyHandler({})).open


class Scrapyd:
    """A scrapyd as a person starts it, in *directory*, its own files and its home in *home*."""

    def __init__(self, directory: Path, home: Path, environment: dict[str, str], **options: str) -> None:
        self._ports = HeldPorts()
        port = self._ports.hold()
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = home / "scrapyd.log"
        # scrapyd reads the one at home after that of the directory.
        options = {f"{name}_dir": str(home / name) for name in ("eggs", "dbs", "logs")} | options
        lines = [
            "[scrapyd]",
            "poll_interval = 0.2",
            *(f"{name} = {value}" for name, value in options.items()),
        ]
        (home / ".scrapyd.conf").write_text("\n".join(lines))
        inherited = {
            name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "PYTHONPATH")
        }
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "scrapyd", "--pidfile="],
                cwd=directory,
                env=inherited | {"HOME": str(home), "SCRAPYD_HTTP_PORT": str(port)} | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            self.get("daemonstatus.json")
        except HTTPError:
            # It wants a password.
            return True
        except URLError:
            return False
        return True

    def get(self, page: str, **fields: str) -> Any:
        return json.load(open_url(f"{self.url}/{page}?{urlencode(fields)}"))

    def post(self, page: str, fields: list[tuple[str, str]]) -> Any:
        answer = json.load(open_url(f"{self.url}/{page}", urlencode(fields).encode()))
        assert answer["status"] == "ok", answer
        return answer

    def schedule(self, crew: Any, spider: str, **arguments: str) -> str:
        """Schedule a job of *crew*, as curl would; returns its number."""
        settings = crew.settings | {"CRAWL_DATA": str(crew.data)}
        fields = [("project", "crawlproj"), ("spider", spider), *arguments.items()]
        fields += [("setting", f"{name}={value}") for name, value in settings.items()]
        return str(self.post("schedule.json", fields)["jobid"])

    def cancel(self, job: str) -> None:
        self.post("cancel.json", [("project", "crawlproj"), ("job", job)])

    def jobs(self, state: str) -> dict[str, str]:
        """The spiders of its jobs by number."""
        return {job["id"]: job["spider"] for job in self.get("listjobs.json")[state]}

    def exit_codes(self, jobs: list[str]) -> list[str]:
        """How *jobs* ended: '0', or what scrapyd says of a death."""
        said = {
            job: "0" if how == "finished" else how
            for how, job in re.findall(r"Process (finished|died: exitstatus=\S+):? .*?job='(\S+)'", self.log)
        }
        return [said.get(job, "not at all") for job in jobs]

    def has_ended(self, *jobs: str) -> bool:
        return set(jobs) <= self.jobs("finished").keys()

    def job_logs(self) -> str:
        return "\n".join(path.read_text() for path in self.log_path.parent.glob("logs/*/*/*.log"))

    def stop(self) -> None:
        """End it and its jobs: they would outlive it."""
        pids = re.findall(r"Process started: .* pid=(\d+)", self.log)
        over = re.findall(r"Process (?:finished|died).* pid=(\d+)", self.log)
        for pid in set(pids) - set(over):
            try:
                os.kill(int(pid), 9)
            except ProcessLookupError:
                pass
        self.process.terminate()
        self.process.wait()
        self._ports.close()
