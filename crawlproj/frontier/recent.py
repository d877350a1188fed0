"""What was admitted lately, to admit it again if Redis lost it.

In a Redis Cluster each slot may be set back alone. A link that was acknowledged may be lost while its page,
in another slot, is stored for good: then only this process knows the link. Admitting is safe to repeat.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.connection import Argument

#: The keys and arguments of one call of a script.
Call = tuple[Sequence[str], Sequence[Argument]]

#: A master that is replaced loses what it had not passed on to its replica: less than a second, as a rule.
_KEPT_S = 60.0
#: About 100,000 URLs, 30 MB.
_MOST_ARGUMENTS = 300_000


class RecentAdmissions:
    """The latest calls of `admit_urls`, bounded in time and number."""

    def __init__(self) -> None:
        #: That of the client as of which all of them are in Redis.
        self._generation = 0
        self._calls: deque[tuple[float, Call]] = deque()
        self._arguments = 0

    def add(self, calls: Sequence[Call]) -> None:
        now_s = time.monotonic()
        for call in calls:
            self._calls.append((now_s, call))
            self._arguments += len(call[1])
        while self._calls and (self._arguments > _MOST_ARGUMENTS or self._calls[0][0] < now_s - _KEPT_S):
            self._arguments -= len(self._calls.popleft()[1][1])

    async def readmit(self, client: RedisClient) -> int:
        """Admit all again if Redis was set back since the last time; returns how many it had lost."""
        generation = client.generation
        if generation == self._generation:
            return 0
        answers = await client.run_many(
            "admit_urls", [call for _, call in self._calls], generation=generation
        )
        self._generation = generation
        return sum(int(answer[0]) for answer in answers)
