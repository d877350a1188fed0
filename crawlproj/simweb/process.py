"""A simulated web in a process of its own, for tests and benchmarks."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from crawlproj.errors import CrawlError
from crawlproj.simweb.connection import FLUSH_PATH
from crawlproj.simweb.graph import World
from crawlproj.simweb.referee import Referee
from crawlproj.simweb.spec import WorldSpec

#: For a crawl of it. Faster than the defaults: it is on this machine. Its sites link to each other.
CRAWL_SETTINGS = {
    "CRAWL_SCOPE": "everything",
    "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
    "DOWNLOAD_DELAY": "0.2",
    "CRAWL_BACKOFF_SECONDS": "1",
    "CRAWL_SEGMENT_SECONDS": "5",
}
_PACKAGE_PARENT = Path(__file__).parents[2]
#: Even a world of 100,000 domains is ready in well under a second; the rest is for a busy machine.
_READY_WITHIN_S = 30.0
_STOP_WITHIN_S = 10.0


def web_to_try(domains: int) -> WorldSpec:
    """Return the web of *domains* that commands crawl to show what they do."""
    return WorldSpec.wild(domains=domains, pages_per_domain=25)


class SimwebProcess:
    """Serves *spec* while the ``with`` block runs, its log and spec in *directory*."""

    world: World
    port: int
    pid: int

    def __init__(self, spec: WorldSpec, directory: Path) -> None:
        self._spec = spec
        self.log_path = directory / "access.jsonl"
        self._spec_path = directory / "world.json"

    def __enter__(self) -> Self:
        self._spec_path.parent.mkdir(parents=True, exist_ok=True)
        self._spec_path.write_text(self._spec.to_json())
        paths = [str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]
        self._child = subprocess.Popen(
            [
                # -P: a file where a person works may have the name of a module.
                *(sys.executable, "-P", "-m", "crawlproj.simweb", "--json", "--with-parent"),
                *("--spec", str(self._spec_path), "--log", str(self.log_path)),
            ],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            # Apart from the terminal: Ctrl-C is for the crawler, which may still want to drain.
            start_new_session=True,
        )
        assert self._child.stdout is not None
        select.select([self._child.stdout], [], [], _READY_WITHIN_S)
        line = self._child.stdout.readline() if self._child.poll() is None else b""
        if not line:
            self.stop()
            raise CrawlError("The simulated web did not start; see its output above.")
        self.port = json.loads(line)["port"]
        self.pid = self._child.pid
        self.world = World(dataclasses.replace(self._spec, port=self.port))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server; its log is complete afterwards. A second call does nothing."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            self._child.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def seeds(self, count: int | None = None) -> list[str]:
        return self.world.seeds(count)

    def referee(self, **arguments: Any) -> Referee:
        """A referee over all requests that have ended until now; *arguments* as for ``Referee``."""
        self.flush()
        return Referee(self.world, self.log_path, **arguments)

    def flush(self) -> None:
        """Have the log written that the server still holds."""
        if self._child.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_STOP_WITHIN_S)
            connection.request("GET", FLUSH_PATH)
            connection.getresponse().read()
            connection.close()
