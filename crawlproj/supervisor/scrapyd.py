"""A scrapyd server, spoken to over HTTP: what it has, what runs there, one job more or less.

Its username and password go into one header and nowhere else: no message ever shows them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import netrc
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from crawlproj.errors import BadArgument, CrawlError

#: What the project is called there.
PROJECT = "crawlproj"
_PORT = 6800
#: Longer than `scrapy list` takes on a busy machine: scrapyd runs it, and answers nobody meanwhile.
_ANSWER_S = 60.0
_ANSWER_BYTES = 16 * 1024 * 1024
_DEPLOY = "Start scrapyd in the project's directory, or deploy an egg there: docs/scrapyd.md."


class ScrapydTrouble(CrawlError):
    """A scrapyd server that is away, or says no."""


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    spider: str
    #: pending, running or finished.
    state: str


class ScrapydServer:
    """One server by its address, as in ``http://user:password@host:6800``; else netrc has the password."""

    def __init__(self, address: str) -> None:
        url = _split(address)
        assert url.hostname is not None
        self.host = url.hostname
        self._scheme = url.scheme
        self._port = url.port or (443 if url.scheme == "https" else _PORT)
        self._path = url.path.rstrip("/")
        #: How it is called in messages.
        self.name = f"{self._scheme}://{_bracketed(self.host)}:{self._port}{self._path}"
        self._authorization = _authorization(url)

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, as far as its address tells."""
        return is_here(self.host)

    async def check(self, spiders: set[str], version: str) -> None:
        """Raise ScrapydTrouble unless it would take jobs of *spiders*; *version* is empty for the newest."""
        await self._ask("GET", "daemonstatus.json", {})
        fields = {"project": PROJECT} | ({"_version": version} if version else {})
        known = (await self._ask("GET", "listspiders.json", fields))["spiders"]
        missing = sorted(spiders.difference(known))
        if missing:
            raise ScrapydTrouble(
                f"The project {PROJECT} of {self.name} has no spider {missing[0]}: it is another version, or "
                f"another project of that name. {_DEPLOY}"
            )

    async def schedule(
        self, spider: str, job: str, arguments: Mapping[str, str], settings: Mapping[str, str], version: str
    ) -> None:
        fields = [("project", PROJECT), ("spider", spider), ("jobid", job), *arguments.items()]
        fields += [("setting", f"{name}={value}") for name, value in settings.items()]
        if version:
            fields.append(("_version", version))
        await self._ask("POST", "schedule.json", fields)

    async def jobs(self) -> list[Job]:
        """Return the jobs of the project it knows: that wait, that are at work, and that ended of late."""
        answer = await self._ask("GET", "listjobs.json", {"project": PROJECT})
        return [
            Job(job["id"], job["spider"], state)
            for state in ("pending", "running", "finished")
            for job in answer[state]
        ]

    async def cancel(self, job: str) -> None:
        """Have a job drain and end; one that has not begun never will."""
        # Never twice for one job: the second SIGINT stops it at once.
        await self._ask("POST", "cancel.json", {"project": PROJECT, "job": job})

    async def _ask(
        self, method: str, page: str, fields: Mapping[str, str] | list[tuple[str, str]]
    ) -> dict[str, Any]:
        status, body = await asyncio.to_thread(self._exchange, method, page, urlencode(fields))
        if status == 401:
            raise ScrapydTrouble(
                f"scrapyd at {self.name} refuses the username and password."
                if self._authorization
                else f"scrapyd at {self.name} wants a username and a password: write them into the address "
                "(http://user:password@...) or into ~/.netrc."
            )
        try:
            answer = json.loads(body)
            is_ok = answer["status"] == "ok"
        except (ValueError, TypeError, KeyError):
            raise ScrapydTrouble(
                f"{self.name} answers {status}, and not as scrapyd does. Is the address right?"
            ) from None
        if not is_ok:
            raise ScrapydTrouble(self._refusal(str(answer.get("message", ""))))
        return dict(answer)

    def _exchange(self, method: str, page: str, fields: str) -> tuple[int, bytes]:
        path = f"{self._path}/{page}"
        headers = {"Authorization": self._authorization} if self._authorization else {}
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        # Not urllib.request: it sends the password on to wherever it is redirected, and through proxies.
        connection = (
            HTTPSConnection(self.host, self._port, timeout=_ANSWER_S, context=ssl.create_default_context())
            if self._scheme == "https"
            else HTTPConnection(self.host, self._port, timeout=_ANSWER_S)
        )
        try:
            if method == "POST":
                connection.request(method, path, fields, headers)
            else:
                connection.request(method, f"{path}?{fields}", headers=headers)
            response = connection.getresponse()
            return response.status, response.read(_ANSWER_BYTES)
        except (OSError, HTTPException) as exc:
            raise ScrapydTrouble(
                f"scrapyd at {self.name} does not answer ({exc}). Is it running, and does its bind_address "
                "let this machine in?"
            ) from exc
        finally:
            connection.close()

    def _refusal(self, message: str) -> str:
        if message == f"project '{PROJECT}' not found":
            return f"scrapyd at {self.name} has no project {PROJECT}. {_DEPLOY}"
        if message.startswith("version "):
            return f"scrapyd at {self.name}: {message}. Deploy it there, or leave out --version."
        # Of what a program said, the end of its traceback.
        lines = message.strip().splitlines() or ["no reason given"]
        return f"scrapyd at {self.name} refuses: {lines[-1]}"


def is_here(host: str) -> bool:
    """Whether *host* names this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _split(address: str) -> SplitResult:
    try:
        url = urlsplit(address)
        is_good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        # What is before the @ may be a password.
        shown = address.rpartition("@")[2]
        raise BadArgument(f"{shown!r} is not the address of a scrapyd; write it as http://host:{_PORT}.")
    return url


def _authorization(url: SplitResult) -> str:
    """Return the header that lets us in; empty when no username is known for the server."""
    username, password = unquote(url.username or ""), unquote(url.password or "")
    if not username:
        try:
            found = netrc.netrc().authenticators(url.hostname or "")
        except FileNotFoundError:
            found = None
        except netrc.NetrcParseError as exc:
            raise BadArgument(f"Cannot read {exc.filename}, line {exc.lineno}: {exc.msg}.") from None
        username, _, password = found or ("", "", "")
    if not username:
        return ""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
