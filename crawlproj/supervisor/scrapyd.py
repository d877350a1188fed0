"""A client for scrapyd's HTTP API.

Username and password go into one header and nowhere else: no message shows them.
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

PROJECT = "crawlproj"
_PORT = 6800
#: Longer than `scrapy list` takes on a busy machine: scrapyd runs it, and blocks meanwhile.
_ANSWER_S = 60.0
_ANSWER_BYTES = 16 * 1024 * 1024
_DEPLOY = "Start scrapyd in the project's directory, or deploy an egg there: docs/scrapyd.md."


class ScrapydError(CrawlError):
    """A scrapyd server is unreachable or refused a call."""


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    spider: str
    #: pending, running or finished.
    state: str


class ScrapydServer:
    """One server by its URL, ``http://user:password@host:6800``; credentials may also be in netrc."""

    def __init__(self, address: str) -> None:
        url = _split(address)
        assert url.hostname is not None
        self.host = url.hostname
        self._scheme = url.scheme
        self._port = url.port or (443 if url.scheme == "https" else _PORT)
        self._path = url.path.rstrip("/")
        #: For messages: without credentials.
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.name = f"{self._scheme}://{host}:{self._port}{self._path}"
        self._authorization = _authorization(url)

    async def check(self, spiders: set[str], version: str) -> None:
        """Raise ScrapydError unless it would take jobs of *spiders*; *version* is empty for the newest."""
        await self._call("GET", "daemonstatus.json", {})
        fields = {"project": PROJECT} | ({"_version": version} if version else {})
        known = (await self._call("GET", "listspiders.json", fields))["spiders"]
        missing = sorted(spiders.difference(known))
        if missing:
            raise ScrapydError(
                f"Project {PROJECT} on {self.name} has no spider {missing[0]}: it is another version, or "
                f"another project of the same name. {_DEPLOY}"
            )

    async def schedule(
        self, spider: str, job: str, arguments: Mapping[str, str], settings: Mapping[str, str], version: str
    ) -> None:
        fields = [("project", PROJECT), ("spider", spider), ("jobid", job), *arguments.items()]
        fields += [("setting", f"{name}={value}") for name, value in settings.items()]
        if version:
            fields.append(("_version", version))
        await self._call("POST", "schedule.json", fields)

    async def jobs(self) -> list[Job]:
        """Return the project's pending, running and recently finished jobs."""
        answer = await self._call("GET", "listjobs.json", {"project": PROJECT})
        return [
            Job(job["id"], job["spider"], state)
            for state in ("pending", "running", "finished")
            for job in answer[state]
        ]

    async def cancel(self, job: str) -> None:
        """Let a job finish its downloads in flight and end; a pending one is removed."""
        # Once per job: a second SIGINT stops it at once.
        await self._call("POST", "cancel.json", {"project": PROJECT, "job": job})

    async def _call(
        self, method: str, page: str, fields: Mapping[str, str] | list[tuple[str, str]]
    ) -> dict[str, Any]:
        status, body = await asyncio.to_thread(self._exchange, method, page, urlencode(fields))
        if status == 401:
            raise ScrapydError(
                f"scrapyd at {self.name} rejected the username and password."
                if self._authorization
                else f"scrapyd at {self.name} requires a username and password: put them into the URL "
                "(http://user:password@...) or into ~/.netrc."
            )
        try:
            answer = json.loads(body)
            is_ok = answer["status"] == "ok"
        except (ValueError, TypeError, KeyError):
            raise ScrapydError(
                f"{self.name} answered {status}, but not like scrapyd. Is the address right?"
            ) from None
        if not is_ok:
            raise ScrapydError(self._refusal(str(answer.get("message", ""))))
        return dict(answer)

    def _exchange(self, method: str, page: str, fields: str) -> tuple[int, bytes]:
        path = f"{self._path}/{page}"
        headers = {"Authorization": self._authorization} if self._authorization else {}
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        # Not urllib.request: it would send the password to redirect targets and proxies.
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
            raise ScrapydError(
                f"scrapyd at {self.name} is unreachable ({exc}). Is it running, and does its bind_address "
                "accept this machine?"
            ) from exc
        finally:
            connection.close()

    def _refusal(self, message: str) -> str:
        if message == f"project '{PROJECT}' not found":
            return f"scrapyd at {self.name} has no project {PROJECT}. {_DEPLOY}"
        if message.startswith("version "):
            return f"scrapyd at {self.name}: {message}. Deploy it there, or leave out --version."
        # The message may be a traceback; its last line says most.
        lines = message.strip().splitlines() or ["no reason given"]
        return f"scrapyd at {self.name} refused the call: {lines[-1]}"


def is_local(host: str) -> bool:
    """Whether *host* names this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname())


def _split(address: str) -> SplitResult:
    try:
        url = urlsplit(address)
        is_good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        # What precedes the @ may be a password.
        shown = address.rpartition("@")[2]
        raise BadArgument(f"{shown!r} is not the URL of a scrapyd server; expected http://host:{_PORT}.")
    return url


def _authorization(url: SplitResult) -> str:
    """Return the Authorization header; empty when there are no credentials for the server."""
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
