"""The same steps in a real Redis: from the same data, each gives the same answer and the same data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crawlproj.errors import Fenced as FencedError
from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from tests.model.explore import judge_end, seeded
from tests.model.processes import Step, next_steps
from tests.model.steps import (
    BACK,
    DELAY,
    FLIGHT,
    ROOM,
    Fenced,
    Message,
    Partition,
    Redis,
    carry_out,
    domain_of,
)
from tests.model.world import Scene, World
from tests.waiting import Waiting, questions

RUN = "model"
#: So that a tick is the time in which living shards notice a set-back.
TICK_MS = 2000
START_MS = 1_800_000_000_000
DOMAINS = ("a.test", "b.test")
#: Key -> its value as DUMP gives it.
Dump = dict[bytes, bytes]


class Replay:
    """Takes the steps of *scene* in the model and in the Redis of *client* at once."""

    def __init__(self, client: RedisClient, scene: Scene) -> None:
        self.client = client
        self.scene = scene
        self.now_ms = START_MS
        self.partitions = max(scene.partitions.values()) + 1
        self.frontier = Frontier(client, RUN, self.partitions, now_ms=lambda: self.now_ms)
        self.transitions = self.steps = 0

    async def run_all(self) -> None:
        """Replay every transition of the scene."""
        start, begun = await self._begin()
        #: World -> data, the data to come back to, and the time.
        reached, left = {start: begun}, [start]
        while left:
            world = left.pop()
            for step in next_steps(world, self.scene):
                if step.world == world:
                    continue
                after = await self._transition(world, step, *reached[world])
                if step.world not in reached:
                    reached[step.world] = after
                    left.append(step.world)

    async def run_along(self, schedule: Iterable[str]) -> str:
        """Replay the steps of a schedule; returns the promise that the last one breaks."""
        world, at = await self._begin()
        broken = ""
        for what in schedule:
            step = next(step for step in next_steps(world, self.scene) if step.what == what)
            at = await self._transition(world, step, *at)
            world, broken = step.world, step.broken
        return broken or judge_end(world, self.scene)

    async def _begin(self) -> tuple[World, tuple[Dump, Dump, int]]:
        await self.client.command("FLUSHDB")
        start = self.scene.start()
        if not start.shards:
            start = await self._seed(start)
        return start, (await self._dump(), {}, START_MS)

    async def _seed(self, world: World) -> World:
        """Let the shard of a scene without shards own the partition, with the seeds admitted."""
        await self._acquire(world, Message("acquire", "ideal", 0, ((), None)))
        await self.frontier.admit(map(candidate, self.scene.seeds))
        return seeded(world, self.scene)

    async def _transition(
        self, world: World, step: Step, data: Dump, snapshot: Dump, now_ms: int
    ) -> tuple[Dump, Dump, int]:
        self.now_ms = now_ms
        self.transitions += 1
        if step.what == "tick":
            return data, snapshot, now_ms + TICK_MS
        if step.what == "Redis will come back to this":
            return data, data, now_ms
        if step.what == "Redis is set back":
            await self._restore(snapshot)
            # It is another server, as far as the partitions know.
            for partition in range(self.partitions):
                meta = keys.meta(RUN, partition)
                if await self.client.command("HEXISTS", meta, "server"):
                    await self.client.command("HSET", meta, "server", "earlier")
            return await self._dump(), {}, now_ms
        if step.message is None:
            return data, snapshot, now_ms
        await self._restore(data)
        answer = await self._send(world, step.message)
        self.steps += 1
        if step.message.sender != "ideal":
            _, expected = carry_out(world.redis, step.message, world.server, self.scene.without)
            if step.message.step in ("settle", "release") and not isinstance(expected, Fenced):
                # The code does not look at it.
                expected = None
            is_fenced = isinstance(expected, Fenced)
            assert answer == ("fenced" if is_fenced else expected), (step.what, answer, expected)
        real, model = await self._data(), self._expected(step.world.redis)
        assert real == model, (step.what, real, model)
        return await self._dump(), snapshot, now_ms

    # -- a message, as the code sends it --

    async def _send(self, world: World, message: Message) -> Any:
        try:
            return await getattr(self, f"_{message.step}")(world, message)
        except FencedError:
            return "fenced"

    async def _admit(self, world: World, message: Message) -> int:
        return (await self.frontier.admit(map(candidate, message.arguments[0]))).new

    async def _acquire(self, world: World, message: Message) -> Any:
        heir_of, was_ours = message.arguments
        # The server of now is always the same one.
        self.frontier._server = "earlier" if world.server else ""
        until = await self.client.command("HGET", keys.meta(RUN, message.partition), "until")
        has_expired = world.redis.partitions[message.partition].has_expired
        hold = await self.frontier.acquire(
            message.partition,
            message.sender,
            ttl_ms=10**9,
            delay_ms=DELAY * TICK_MS,
            delays_ms={},
            heir_of=heir_of,
            flight_ms=FLIGHT * TICK_MS,
            expired=int(until or 0) if has_expired else 0,
            was_ours=was_ours,
        )
        if not isinstance(hold, Hold):
            return None
        return epoch_of(hold.epoch), hold.number, hold.others_ms // TICK_MS

    async def _rest(self, world: World, message: Message) -> None:
        [waits] = message.arguments
        await self.frontier.rest({f"{name}.test": wait * TICK_MS for name, wait in waits})

    async def _lease(self, world: World, message: Message) -> Any:
        epoch, number = message.arguments
        hold = Hold(message.partition, text_of(epoch), number)
        leases, _ = await self.frontier.lease([(hold, ROOM)], chain=1, chain_ms=TICK_MS)
        return tuple((one.number, short(one.url), one.wait_ms // TICK_MS) for one in leases)

    async def _settle(self, world: World, message: Message) -> None:
        epoch, settlements = message.arguments
        await self.frontier.settle(
            Settlement(
                lease_of(message.partition, text_of(epoch), number, url),
                Outcome.RETURNED if page == BACK else Outcome.DONE,
                wait_ms=wait * TICK_MS,
                page=b"" if page == BACK else page.encode(),
            )
            for number, url, wait, page in settlements
        )

    async def _renew(self, world: World, message: Message) -> int:
        await self.frontier.renew([Hold(message.partition, text_of(message.arguments[0]), 0)], 10**9)
        return 1

    async def _release(self, world: World, message: Message) -> None:
        await self.frontier.release([Hold(message.partition, text_of(message.arguments[0]), 0)])

    async def _register(self, world: World, message: Message) -> int:
        await self.client.run("write_fields", [keys.parsers(RUN)], message.arguments)
        return 1

    async def _take(self, world: World, message: Message) -> tuple[str, ...]:
        return await self._take_pages(*message.arguments, ROOM)

    async def _take_pages(self, parser: str, held: int, most: int) -> tuple[str, ...]:
        names = [keys.pages(RUN), keys.pages_taken(RUN, parser), keys.parsers(RUN)]
        names += [keys.page_counters(RUN), keys.run_record(RUN)]
        _, pages = await self.client.run("take_pages", names, [parser, held, most, 1000])
        return tuple(page.decode() for page in pages)

    async def _commit(self, world: World, message: Message) -> int:
        parser, segment, count = message.arguments
        names = [keys.pages_taken(RUN, parser), keys.segments(RUN), keys.page_counters(RUN), keys.spills(RUN)]
        return int(await self.client.run("commit_segment", names, [segment, count, count, "", ""]))

    async def _reclaim(self, world: World, message: Message) -> int:
        parser, heartbeat = message.arguments
        names = [keys.pages(RUN), keys.pages_taken(RUN, parser), keys.parsers(RUN), keys.page_counters(RUN)]
        return int(await self.client.run("reclaim_pages", names, [parser, heartbeat]))

    async def _fetch(self, world: World, message: Message) -> None:
        meta = dict(pairs(await self.client.command("HGETALL", keys.meta(RUN, 0))))
        hold = Hold(0, meta["epoch"], int(meta.get("number", 0)))
        [lease], _ = await self.frontier.lease([(hold, 1)], chain=1, chain_ms=TICK_MS)
        url = short(lease.url)
        page = "" if isinstance(self.scene.web[url], str) else url
        await self.frontier.settle([Settlement(lease, Outcome.DONE, page=page.encode())])

    async def _store(self, world: World, message: Message) -> None:
        await self.client.command("HSET", keys.parsers(RUN), "ideal", 0)
        [page] = await self._take_pages("ideal", 0, 1)
        await self.frontier.admit(map(candidate, self.scene.web[page]))
        segment = f"ideal-{len(world.redis.stored)}-{page}"
        await self._commit(world, Message("commit", "ideal", -1, ("ideal", segment, 1)))

    # -- what Redis holds --

    async def _dump(self) -> Dump:
        names = await self.client.command("KEYS", f"crawl:{{{RUN}*")
        return dict(zip(names, await self.client.pipeline([("DUMP", name) for name in names]), strict=True))

    async def _restore(self, data: Dump) -> None:
        await self.client.command("FLUSHDB")
        await self.client.pipeline([("RESTORE", name, 0, value) for name, value in data.items()])

    async def _data(self) -> Redis:
        parts = [await self._partition(partition) for partition in range(self.partitions)]
        pages, parsers, segments = await self.client.pipeline(
            [
                ("LRANGE", keys.pages(RUN), 0, -1),
                ("HGETALL", keys.parsers(RUN)),
                ("HKEYS", keys.segments(RUN)),
            ]
        )
        living = [(name, int(beat)) for name, beat in pairs(parsers) if name != "ideal"]
        names = [name.decode() for name in segments]
        taken = []
        processes = [f"{name}{life}" for name in self.scene.parsers for life in range(3)]
        for parser in [f"{process}{restarts}" for process in processes for restarts in ("", ".1", ".2")]:
            own = await self.client.command("LRANGE", keys.pages_taken(RUN, parser), 0, -1)
            taken += [(parser, tuple(page.decode() for page in own))] if own else []
        return Redis(
            tuple(parts),
            (),
            tuple(page.decode() for page in pages),
            tuple(sorted(taken)),
            tuple(sorted(living)),
            frozenset(name for name in names if not name.startswith("ideal")),
            tuple(sorted(name[-2:] for name in names if name.startswith("ideal"))),
        )

    async def _partition(self, partition: int) -> Partition:
        meta, leases, *answers = await self.client.pipeline(
            [
                ("HGETALL", keys.meta(RUN, partition)),
                ("ZRANGE", keys.leases(RUN, partition), 0, -1),
                *questions(RUN, partition, DOMAINS),
            ]
        )
        fields = dict(pairs(meta))
        waiting = Waiting(DOMAINS, *answers)
        states = []
        for name, known in waiting.states.items():
            state = (
                max(0, known.next_ms - self.now_ms) // TICK_MS,
                known.out,
                name in waiting.due,
                tuple(name[0] + entry[-1] for entry in waiting.lanes[name][1]),
            )
            states.append((name[0], state))
        lent = [lease_from(token) for token in leases]
        part = Partition(
            fields.get("owner", ""),
            epoch_of(fields.get("epoch", "")),
            int(fields.get("number", 0)),
            rested=max(0, int(fields.get("rested", 0)) - self.now_ms) // TICK_MS,
            domains=tuple(sorted(states)),
            leases=tuple(lent),
        )
        return part if self.scene.shards else part._replace(owner="", epoch=(0, ""))

    def _expected(self, redis: Redis) -> Redis:
        """What the model holds, without what Redis holds elsewhere or in another form."""
        parts = tuple(
            part._replace(has_expired=False, server=0, seen=frozenset()) for part in redis.partitions
        )
        return redis._replace(partitions=parts, map=())


def candidate(url: str) -> Candidate:
    return Candidate(f"https://{domain_of(url)}.test/{url[1]}")


def short(url: str) -> str:
    return url[len("https://")] + url[-1]


def text_of(epoch: tuple[int, str]) -> str:
    return f"{epoch[0]}:{epoch[1]}"


def epoch_of(text: str) -> tuple[int, str]:
    number, _, owner = text.partition(":")
    return int(number or 0), owner


def lease_of(partition: int, epoch: str, number: int, url: str) -> Lease:
    token = f"{number} 1 {domain_of(url)}.test 0 0 s/{url[1]}"
    return Lease.from_token(token.encode(), partition, epoch)


def lease_from(token: bytes) -> tuple[int, str]:
    number, _, domain, entry = token.decode().split(" ", 3)
    return int(number), domain[0] + entry[-1]
