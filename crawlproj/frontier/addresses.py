"""One request at a time at each IP address, whatever its domain and shard, and a rest after each.

Kept in Redis; see enter_address.lua for who comes next.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable

from crawlproj.redisio import keys
from crawlproj.redisio.client import Argument, Door

#: A wait so short is waited out: to give a lease back and have it lent again takes longer.
BRIEF_S = 0.05


class AddressGate:
    """``now_ms`` is for tests; the server's clock is used otherwise."""

    def __init__(
        self, door: Door, run: str, delay_s: float, *, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self.delay_s = delay_s
        self._enters = _Calls(door, "enter_address")
        self._leaves = _Calls(door, "leave_address")
        self._run = run
        self._delay_ms = math.ceil(delay_s * 1000)
        self._now_ms = now_ms
        #: Told to leave, and perhaps waited for by nobody.
        self._leaving: set[asyncio.Task[None]] = set()

    def visit(self, domain: str) -> Visit:
        return Visit(self, domain)

    async def enter(self, address: str, domain: str, token: bytes, flight_s: float) -> float:
        """Return 0 when *token* is inside now, else after how many seconds *domain* should ask again."""
        wait_ms = await self._enters.run(
            [keys.address(self._run, address), keys.address_line(self._run, address)],
            [self._now_ms(), token, domain, self._delay_ms, math.ceil(flight_s * 1000)],
        )
        return wait_ms / 1000

    async def leave(self, address: str, token: bytes) -> bool:
        """Tell that the request of *token* ended. Returns whether it was still inside."""
        names = [keys.address(self._run, address)]
        return bool(await self._leaves.run(names, [self._now_ms(), token, self._delay_ms]))

    async def leave_after(self, entering: asyncio.Task[float], address: str, token: bytes) -> None:
        """Leave if *token* got in, once that is known: `leave` could overtake `enter` on its way to Redis."""

        async def leave() -> None:
            if not await entering:
                await self.leave(address, token)

        task = asyncio.create_task(leave(), name="leave address")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        await asyncio.shield(task)


class Visit:
    """One request's way through the gate: at one address at a time. `leave` must be called in the end."""

    def __init__(self, gate: AddressGate, domain: str) -> None:
        self._gate = gate
        self._domain = domain
        self._address = ""
        self._token = b""
        self._entering: asyncio.Task[float] | None = None

    async def enter(self, address: str, flight_s: float) -> float:
        """Return 0 when *address* may be asked now, else the seconds to wait before another visit.

        The request must have ended after *flight_s*: from then on others may be let in.
        """
        if self._entering is not None:
            if address == self._address:
                return 0.0
            await self.leave()
        self._address, self._token = address, os.urandom(8)
        wait_s = await self._ask(flight_s)
        if 0 < wait_s <= BRIEF_S:
            await asyncio.sleep(wait_s)
            wait_s = await self._ask(flight_s)
        return wait_s

    async def leave(self) -> None:
        """Tell that the request ended, or was never made. Carried out even if the caller is cancelled."""
        if self._entering is None:
            return
        entering, self._entering = self._entering, None
        await self._gate.leave_after(entering, self._address, self._token)

    async def _ask(self, flight_s: float) -> float:
        entering = self._gate.enter(self._address, self._domain, self._token, flight_s)
        self._entering = asyncio.create_task(entering, name="enter address")
        # Neither a cancelled download nor its deadline ends this: `leave` must know what came of it.
        done, _ = await asyncio.wait({self._entering}, timeout=flight_s / 2)
        # No answer: Redis is away, which is no fault of the site.
        return self._entering.result() if done else self._gate.delay_s


class _Calls:
    """Calls of one script; those made while others are on the wire share the next round trip."""

    def __init__(self, door: Door, script: str) -> None:
        self._door = door
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
                answers = await self._door.run_many(self._script, [(names, args) for names, args, _ in calls])
            except Exception as exc:  # noqa: BLE001  # whoever waits gets it
                for _, _, answer in calls:
                    if not answer.done():
                        answer.set_exception(exc)
                continue
            for (_, _, answer), value in zip(calls, answers, strict=True):
                if not answer.done():
                    answer.set_result(value)
