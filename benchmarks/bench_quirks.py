"""How many pages of servers that get HTTP wrong are fetched: by curl, by Scrapy's handlers, by ours.

Nine kinds of wrong that browsers and curl tolerate; a page counts if its body is whole.
"""

from __future__ import annotations

import shutil
import subprocess

from clients import AIOHTTP, OURS, STOCK, make_handlers, run_in_reactor
from measuring import Goal, Options, Report, read_options
from raw_server import PAGE, QUIRKS, RawServer, quirk_path
from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler

PATIENCE_S = 5.0


def ask_curl(url: str) -> str:
    curl = shutil.which("curl")
    if curl is None:
        return "not here"
    ended = subprocess.run(
        [curl, "--silent", "--noproxy", "*", "--max-time", f"{PATIENCE_S:g}", url],
        capture_output=True,
        check=False,
    )
    return "yes" if ended.returncode == 0 and ended.stdout == PAGE else f"no: exit code {ended.returncode}"


async def ask(handler: BaseDownloadHandler, url: str) -> str:
    try:
        response = await handler.download_request(Request(url, meta={"download_timeout": PATIENCE_S}))
    except Exception as error:  # noqa: BLE001 (which one is the result)
        return f"no: {type(error).__name__}"
    return "yes" if response.body == PAGE else "no: not the page"


async def measure(report: Report, url: str, by_curl: dict[str, str]) -> None:
    handlers = make_handlers()
    table = report.table("Pages of broken servers", "the server's way", "curl", *handlers)
    had = dict.fromkeys(["curl", *handlers], 0)
    for name in QUIRKS:
        found = {"curl": by_curl[name]}
        for client, handler in handlers.items():
            found[client] = await ask(handler, url + quirk_path(name))
        for client, answer in found.items():
            had[client] += answer == "yes"
        table.add(name, *found.values())
    table.add("pages had", *had.values())
    for handler in handlers.values():
        await handler.close()
    best = max(had[STOCK], had[AIOHTTP])
    measured = f"{had[OURS]} of {len(QUIRKS)}; curl {had['curl']}, Scrapy {had[STOCK]} and {had[AIOHTTP]}"
    report.goals.append(Goal("pages of broken servers", f"at least {best}", measured, had[OURS] >= best))


def main(options: Options) -> None:
    report = Report("")
    with RawServer() as server:
        by_curl = {name: ask_curl(server.url + quirk_path(name)) for name in QUIRKS}
        run_in_reactor(lambda: measure(report, server.url, by_curl))
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__))
