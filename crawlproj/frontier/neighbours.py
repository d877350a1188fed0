"""Other runs that fetch through the same Redis: a domain rests for all of them together.

A shard leases a domain only if no other run has it out or lets it rest: `lease_urls.lua` reads what they know
of it in the same step, so two runs never lease it at once. Runs that no longer announce themselves are left
out.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from math import gcd

from crawlproj.model.clock import Unchanged, boot_clock
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs

#: A run that has not announced itself for so many times as long as its shards may be silent has ended.
_PATIENCE = 1.25
_VERSION = ":version"


class Neighbours:
    """The runs beside ours, as of the last `announce`.

    *silent_s*: how long our run may be silent, or have a request in flight, before others may forget it.
    """

    def __init__(
        self,
        client: RedisClient,
        run: str,
        partitions: int,
        silent_s: float,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        #: Of the hash `fetching`; Redis leases nothing to who has another. '' until the first `announce`.
        self.version = ""
        self._client = client
        self._run = run
        self._partitions = partitions
        self._silent_s = silent_s
        self._clock = clock
        self._unchanged = Unchanged()
        #: The runs beside ours, with their numbers of partitions.
        self._others: dict[str, int] = {}

    async def announce(self) -> None:
        """Show that our run fetches, and read which others do. To be called at every renewal."""
        facts = {"partitions": self._partitions, "silent_s": self._silent_s}
        answer = await self._client.run(
            "announce_run", [keys.fetching()], [self._run, json.dumps(facts), secrets.token_hex(6)]
        )
        fetching = dict(pairs(answer))
        self.version = fetching.pop(_VERSION)
        del fetching[self._run]
        now_s = self._clock()
        self._others = {}
        for run, value in fetching.items():
            known = json.loads(value)
            if self._unchanged.for_s(run, value, now_s) < _PATIENCE * known["silent_s"]:
                self._others[run] = known["partitions"]

    def keys_of(self, partition: int) -> list[str]:
        """Return the keys that `lease_urls` wants: `meta` and `domains` wherever others have our domains."""
        found = [keys.fetching()]
        for run, partitions in self._others.items():
            # Equal numbers of partitions: the same one.
            step = gcd(partitions, self._partitions)
            for theirs in range(partition % step, partitions, step):
                found += [keys.meta(run, theirs), keys.domains(run, theirs)]
        return found
