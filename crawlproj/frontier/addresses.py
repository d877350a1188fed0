"""One request at a time per IP address, across domains and shards, with a delay after each.

The state is in Redis; enter_address.lua decides which domain is next.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.connection import Argument

#: A wait this short is slept through: returning a lease and leasing it again takes longer.
BRIEF_S = 0.05


class AddressGate:
    """``now_ms`` is for tests; otherwise the server's clock is used."""

    def __init__(
        self, client: RedisClient, run: str, delay_s: float, *, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self.delay_s = delay_s
        self._enters = _Calls(client, "enter_address")
        self._leaves = _Calls(client, "leave_address")
        self._run = run
        self._delay_ms = math.ceil(delay_s * 1000)
        self._now_ms = now_ms
        #: Kept so that they are not garbage-collected.
        self._leaving: set[asyncio.Task[None]] = set()

    def visit(self, domain: str) -> Visit:
        return Visit(self, domain)

    async def enter(self, address: str, domain: str, token: bytes, flight_s: float) -> float:
        """Return 0 when *token* is admitted, else after how many seconds *domain* should try again."""
        wait_ms = await self._enters.run(
            [keys.address(self._run, address), keys.address_line(self._run, address)],
            [self._now_ms(), token, domain, self._delay_ms, math.ceil(flight_s * 1000)],
        )
        return wait_ms / 1000

    async def leave(self, address: str, token: bytes) -> bool:
        """Record that the request of *token* ended. Returns whether it was still admitted."""
        names = [keys.address(self._run, address)]
        return bool(await self._leaves.run(names, [self._now_ms(), token, self._delay_ms]))

    async def leave_after(self, entering: asyncio.Task[float], address: str, token: bytes) -> None:
        """Leave once `enter` is done, if *token* was admitted: `leave` must not overtake it."""

        async def leave() -> None:
            if not await entering:
                await self.leave(address, token)

        task = asyncio.create_task(leave(), name="leave address")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        await asyncio.shield(task)


class Visit:
    """One request at the gate, at one address at a time. `leave` must be called in the end."""

    def __init__(self, gate: AddressGate, domain: str) -> None:
        self._gate = gate
        self._domain = domain
        self._address = ""
        self._token = b""
        self._entering: asyncio.Task[float] | None = None

    async def enter(self, address: str, flight_s: float) -> float:
        """Return 0 when *address* may be requested now, else the seconds to wait before another visit.

        The request must end within *flight_s*: after that others may be admitted.
        """
        if self._entering is not None:
            if address == self._address:
                return 0.0
            await self.leave()
        self._address, self._token = address, os.urandom(8)
        wait_s = await self._try(flight_s)
        if 0 < wait_s <= BRIEF_S:
            await asyncio.sleep(wait_s)
            wait_s = await self._try(flight_s)
        return wait_s

    async def leave(self) -> None:
        """Record that the request ended or was never made. Completes even if the caller is cancelled."""
        if self._entering is None:
            return
        entering, self._entering = self._entering, None
        await self._gate.leave_after(entering, self._address, self._token)

    async def _try(self, flight_s: float) -> float:
        entering = self._gate.enter(self._address, self._domain, self._token, flight_s)
        self._entering = asyncio.create_task(entering, name="enter address")
        # Not ended by a cancelled download or its deadline: `leave` needs the result.
        done, _ = await asyncio.wait({self._entering}, timeout=flight_s / 2)
        # No answer: Redis is unreachable, and the site waits.
        return self._entering.result() if done else self._gate.delay_s


class _Calls:
    """Calls of one script; those made during a round trip share the next one."""

    def __init__(self, client: RedisClient, script: str) -> None:
        self._client = client
        self._script = script
        self._waiting: list[tuple[list[str], list[Argument], asyncio.Future[int]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def run(self, names: list[str], args: list[Argument]) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((names, args, answer))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name=self._script)
        return await answer

    async def _send(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, []
            try:
                answers = await self._client.run_many(
                    self._script, [(names, args) for names, args, _ in calls]
                )
            except Exception as exc:  # noqa: BLE001  # passed on to the waiters
                for _, _, answer in calls:
                    if not answer.done():
                        answer.set_exception(exc)
                continue
            for (_, _, answer), value in zip(calls, answers, strict=True):
                if not answer.done():
                    answer.set_result(value)
