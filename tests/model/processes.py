"""What can happen next in a world: each step of a shard, a parser, the network, time, and each fault.

A process does here what its code does, in the same order: `Feed` for a shard, `Parser` for a parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.steps import (
    BACK,
    DELAY,
    FLIGHT,
    GRACE,
    Fenced,
    Message,
    Redis,
    admit,
    carry_out,
    domain_of,
    get,
    put,
)
from tests.model.world import Disk, Held, Parser, Scene, Shard, World, is_requested, tick


class Step(NamedTuple):
    """One thing that may happen: what, the world after it, and the promise it breaks ('': none)."""

    what: str
    world: World
    is_fault: bool = False
    broken: str = ""
    #: The message that was carried out, for the replay in a real Redis.
    message: Message | None = None


def next_steps(world: World, scene: Scene) -> Iterator[Step]:
    """Yield all that can happen; without faults, what must happen in the end comes first."""
    for n, message in enumerate(world.late):
        late = world.late[:n] + world.late[n + 1 :]
        yield _carried_out(world._replace(late=late), message, scene, f"late copy of {_text(message)}")
    for n, shard in enumerate(world.shards):
        yield from _Shard(world, scene, n, shard).steps()
    for n, parser in enumerate(world.parsers):
        yield from _Parser(world, scene, n, parser).steps()
    if not world.shards:
        yield from _ideal_fetch(world, scene)
    if not world.parsers:
        yield from _ideal_store(world, scene)
    yield from _expiries(world)
    later = tick(world)
    if later is not None:
        yield Step("tick", later)
    yield from _faults(world, scene.without)


def _text(message: Message) -> str:
    return f"{message.sender} {message.step} {' '.join(map(str, message.arguments))}"


def _spend(world: World, fault: str) -> World | None:
    left = get(world.faults, fault, 0)
    return world._replace(faults=put(world.faults, fault, left - 1 or None)) if left else None


def _carried_out(world: World, message: Message, scene: Scene, what: str) -> Step:
    redis, answer = carry_out(world.redis, message, world.server, scene.without)
    return Step(
        what, world._replace(redis=redis), broken=_accepted_wrongly(world, message, answer), message=message
    )


def _accepted_wrongly(world: World, message: Message, answer: Any) -> str:
    if (
        message.step not in ("lease", "settle", "renew", "release")
        or isinstance(answer, Fenced)
        or answer == 0
    ):
        return ""
    owner = world.redis.partitions[message.partition].epoch[1]
    return "" if owner == message.sender else f"{message.step} of {message.sender} accepted, owner is {owner}"


class _Process:
    """Sends messages: each is carried out and answered, or its answer is lost, or a copy comes late."""

    def __init__(self, world: World, scene: Scene, place: int) -> None:
        self.world = world
        self.scene = scene
        self.without = scene.without
        self.place = place

    def kept(self, world: World, memory: Any) -> World:
        raise NotImplementedError

    def lose(self, world: World, message: Message) -> World:
        raise NotImplementedError

    def send(self, message: Message, receive: Callable[[World, Any], World]) -> Iterator[Step]:
        world, what = self.world, _text(message)
        redis, answer = carry_out(world.redis, message, world.server, self.without)
        broken = _accepted_wrongly(world, message, answer)
        after = world._replace(redis=redis)
        yield Step(what, receive(after, answer), broken=broken, message=message)
        if redis != world.redis and (spent := _spend(after, "lost answer")):
            lost = self.lose(spent, message)
            yield Step(f"{what}, answer lost", lost, True, broken, message)
        # Also of a step that is refused now: it may be accepted later.
        may_matter = redis != world.redis or isinstance(answer, Fenced)
        if may_matter and (not self.scene.late or message.step in self.scene.late):
            spent = _spend(after, "late copy")
            if spent is not None:
                copied = receive(spent._replace(late=(*spent.late, message)), answer)
                yield Step(f"{what}, a copy comes late", copied, True, broken, message)


class _Shard(_Process):
    def __init__(self, world: World, scene: Scene, place: int, shard: Shard) -> None:
        super().__init__(world, scene, place)
        self.shard = shard

    def kept(self, world: World, memory: Shard) -> World:
        return world._replace(shards=(*world.shards[: self.place], memory, *world.shards[self.place + 1 :]))

    def told(self, world: World, **changes: Any) -> World:
        is_ahead = self.shard.is_ahead or world.snapshot is not None
        return self.kept(world, self.shard._replace(is_ahead=is_ahead, pending=None, **changes))

    def lose(self, world: World, message: Message) -> World:
        return self.kept(world, self.shard._replace(pending=message))

    def message(self, step: str, partition: int, *arguments: Any) -> Message:
        return Message(step, self.shard.owner, partition, arguments)

    def steps(self) -> Iterator[Step]:
        world, shard = self.world, self.shard
        who = shard.owner
        if shard.state == "down":
            seeds = self.scene.seeds if self.place == 0 else ()
            fresh = Shard(shard.name, shard.life + 1, seeds=seeds, map=shard.map)
            yield Step(f"{shard.name} restarts", self.kept(world, fresh))
            return
        yield from self._ends()
        if shard.state == "suspended":
            woken = shard._replace(state="up", may_fetch=not shard.holds)
            yield Step(f"{who} wakes", self.kept(world, woken))
        elif shard.state in ("draining", "resting"):
            yield from self._start_over()
        elif shard.was_set_back:
            yield from self._begins()
            if "shards start over" in self.without:
                yield Step(f"{who} continues", self.kept(world, shard._replace(was_set_back=False)))
            else:
                yield Step(f"{who} notices the set-back", self.kept(world, self.drained(shard)))
        else:
            yield from self._begins()
            for step in self._sends():
                if not shard.pending or (step.message and step.message.step == shard.pending.step):
                    yield step

    def _sends(self) -> Iterator[Step]:
        yield from self._flush()
        yield from self._change_ownership()
        yield from self._lease()

    def drained(self, shard: Shard) -> Shard:
        """Return *shard* as it begins to start over: its requests end, and it publishes its rests."""
        return self.keeping_rests(shard._replace(state="draining", pending=None))

    def keeping_rests(self, shard: Shard) -> Shard:
        unsaid = {self.scene.partitions[name] for name, _ in self.known_rests(shard)}
        if "rests are published" in self.without:
            unsaid = set()
        # From now on what Redis holds is what it knows.
        silent = shard.silent if unsaid else 0
        return shard._replace(unsaid=tuple(sorted(unsaid)), was_set_back=False, silent=silent)

    def known_rests(self, shard: Shard) -> tuple[tuple[str, int], ...]:
        rests = shard.rests
        for held in shard.leases:
            if held.state == "in flight":
                rests = put(rests, domain_of(held.url), FLIGHT + DELAY)
        return rests

    def _start_over(self) -> Iterator[Step]:
        world, shard, who = self.world, self.shard, self.shard.owner
        if shard.was_set_back and not shard.unsaid and "rests are said again" in self.without:
            yield Step(f"{who} continues", self.kept(world, shard._replace(was_set_back=False)))
        elif shard.was_set_back:
            yield Step(f"{who} notices the set-back", self.kept(world, self.drained(shard)))
        elif shard.unsaid:
            partition, *left = shard.unsaid
            waits = tuple(
                item for item in self.known_rests(shard) if self.scene.partitions[item[0]] == partition
            )
            yield from self.send(
                self.message("rest", partition, waits),
                lambda world, answer: self.told(
                    world, unsaid=tuple(left), silent=shard.silent if left else 0
                ),
            )
        elif shard.state == "resting":
            yield Step(f"{who} has started over", self.kept(world, self._started_over(shard)))
        elif not any(held.state == "in flight" for held in shard.leases):
            ended = self.keeping_rests(shard._replace(state="resting", leases=()))
            if not ended.unsaid:
                ended = self._started_over(ended)
            yield Step(f"{who} starts over", self.kept(world, ended))

    def _started_over(self, shard: Shard) -> Shard:
        # Its number is claimed again without a look at what was lost meanwhile.
        fresh = (
            set() if "ours after a flight" in self.without else {partition for partition, _ in shard.fresh}
        )
        return shard._replace(
            state="up",
            restarts=shard.restarts + 1,
            holds=(),
            leases=(),
            seeds=self.scene.seeds if self.place == 0 else (),
            may_fetch=True,
            ours=frozenset() if shard.has_lapsed else shard.ours - fresh,
            fresh=(),
            calm=0,
            has_new_server=False,
            has_lapsed=False,
            silent=0,
            pending=None,
        )

    def _begins(self) -> Iterator[Step]:
        for n, held in enumerate(self.shard.leases):
            if held.state != "waiting" or held.wait or not self.shard.may_fetch:
                continue
            domain = domain_of(held.url)
            if any(o.state == "in flight" and domain_of(o.url) == domain for o in self.shard.leases):
                continue
            broken = ""
            if is_requested(self.world, domain):
                broken = f"two requests of {domain} in flight"
            elif get(self.world.rests, domain):
                broken = f"{domain} is requested too soon"
            held = held._replace(state="in flight", wait=FLIGHT, requested=held.url)
            world = self._with(n, held)
            yield Step(f"{self.shard.owner} requests {held.requested}", world, broken=broken)

    def _ends(self) -> Iterator[Step]:
        for n, held in enumerate(self.shard.leases):
            if held.state == "in flight":
                target = self.scene.web[held.requested]
                shard = self.shard._replace(rests=put(self.shard.rests, domain_of(held.url), DELAY))
                if isinstance(target, str):
                    shard = shard._replace(candidates=(*shard.candidates, target))
                world = self._with(n, held._replace(state="ended", wait=0), shard)
                rests = put(world.rests, domain_of(held.url), DELAY)
                yield Step(f"{held.requested} answers {self.shard.owner}", world._replace(rests=rests))

    def _with(self, place: int, held: Held, shard: Shard | None = None) -> World:
        shard = shard or self.shard
        leases = (*shard.leases[:place], held, *shard.leases[place + 1 :])
        return self.kept(self.world, shard._replace(leases=leases))

    def _flush(self) -> Iterator[Step]:
        shard = self.shard
        ended = [held for held in shard.leases if held.state == "ended"]
        candidates = shard.seeds + shard.candidates
        if shard.pending and shard.pending.step == "settle":
            # What has ended since is not safe to settle: its candidates are not admitted.
            yield from self._settle(shard.pending)
        elif candidates and not (ended and "candidates before settlement" in self.without):
            partition = self.scene.partitions[domain_of(candidates[0])]
            here = tuple(url for url in candidates if self.scene.partitions[domain_of(url)] == partition)
            left = tuple(url for url in shard.candidates if url not in here)
            seeds = tuple(url for url in shard.seeds if url not in here)
            yield from self.send(
                self.message("admit", partition, here),
                lambda world, answer: self.told(world, seeds=seeds, candidates=left),
            )
        elif ended:
            first = ended[0]
            batch = [h for h in ended if (h.partition, h.epoch) == (first.partition, first.epoch)]
            settlements = tuple(
                (
                    held.number,
                    held.url,
                    get(shard.rests, domain_of(held.url), 0),
                    self.page_of(held),
                )
                for held in batch
            )
            yield from self._settle(self.message("settle", first.partition, first.epoch, settlements))

    def page_of(self, held: Held) -> str:
        if not held.requested:
            return BACK
        return "" if isinstance(self.scene.web[held.requested], str) else held.requested

    def _settle(self, message: Message) -> Iterator[Step]:
        epoch, settlements = message.arguments
        closed = {(message.partition, epoch, number) for number, *_ in settlements}
        left = tuple(held for held in self.shard.leases if held[:3] not in closed)
        yield from self.send(message, lambda world, answer: self.fenced_or(world, answer, leases=left))

    def fenced_or(self, world: World, answer: Any, **changes: Any) -> World:
        if isinstance(answer, Fenced):
            return self.kept(world, self.drained(self.shard))
        return self.told(world, **changes)

    def renewed(self, world: World, answer: Any) -> World:
        """A hold that could have expired in what Redis has lost may have been another shard's.

        That one says soon which domains must rest: what is not requested yet is leased again after that.
        """
        shard = self.shard
        leases = shard.leases
        if shard.has_new_server and shard.has_lapsed and "leases return after a lapse" not in self.without:
            leases = tuple(h._replace(state="ended", wait=0) if h.state == "waiting" else h for h in leases)
        return self.fenced_or(
            world, answer, may_fetch=True, has_lapsed=False, has_new_server=False, leases=leases
        )

    def _change_ownership(self) -> Iterator[Step]:
        world, shard = self.world, self.shard
        if not shard.may_fetch:
            [partition, (epoch, _)], *_ = shard.holds
            yield from self.send(
                self.message("renew", partition, epoch),
                self.renewed,
            )
            return
        if shard.map != world.redis.map:
            yield Step(f"{shard.owner} reads the map", self.told(world, map=world.redis.map))
        if shard.seeds:
            # They are admitted before the first turn.
            return
        for partition, wanted in enumerate(shard.map):
            held = get(shard.holds, partition)
            absent = not any(s.name == wanted and s.state == "up" for s in world.shards)
            part = world.redis.partitions[partition]
            is_ours = wanted == shard.name or (absent and (part.has_expired or not part.owner))
            if held is None and (is_ours or shard.pending):
                yield from self._acquire(partition)
                continue
            is_empty = not any(lease.partition == partition for lease in shard.leases)
            if held and wanted != shard.name and not absent and is_empty:
                yield from self.send(
                    self.message("release", partition, held[0]),
                    lambda world, answer, p=partition: self.told(
                        world, holds=put(shard.holds, p, None), ours=shard.ours - {p}
                    ),
                )

    def _acquire(self, partition: int) -> Iterator[Step]:
        shard = self.shard
        was_ours = None
        is_others = shard.map[partition] != shard.name
        if shard.restarts or (is_others and "flight for another's partition" not in self.without):
            was_ours = partition in shard.ours
        message = self.message("acquire", partition, shard.heir_of(partition), was_ours)
        if shard.pending and shard.pending.partition == partition:
            message = shard.pending

        def receive(world: World, answer: Any) -> World:
            if not answer:
                return self.kept(world, shard._replace(pending=None, ours=shard.ours - {partition}))
            *hold, others = answer
            return self.told(
                world,
                holds=put(shard.holds, partition, tuple(hold)),
                ours=shard.ours | {partition},
                fresh=put(shard.fresh, partition, others or get(shard.fresh, partition)),
            )

        yield from self.send(message, receive)

    def _lease(self) -> Iterator[Step]:
        shard = self.shard
        for partition, (epoch, number) in shard.holds:
            is_leaving = shard.map[partition] != shard.name and any(
                s.name == shard.map[partition] and s.state == "up" for s in self.world.shards
            )
            if (is_leaving and not shard.pending) or shard.calm:
                continue
            part = self.world.redis.partitions[partition]
            is_due = not part.rested and any(state.is_ready and not state.next for _, state in part.domains)
            if not is_due and (part.number <= number or part.rested) and part.epoch == epoch:
                continue

            def receive(world: World, answer: Any, at: Any = (partition, epoch, number)) -> World:
                if isinstance(answer, Fenced):
                    return self.fenced_or(world, answer)
                partition, epoch, number = at
                leases = shard.leases
                for got, url, wait in answer:
                    if "leases by token" in self.without:
                        # The same number again: the request in flight is then one of the new URL.
                        same = [h for h in leases if (h.partition, h.number) == (partition, got)]
                        if same:
                            again = same[0]._replace(epoch=epoch, url=url)
                            leases = tuple(again if h is same[0] else h for h in leases)
                            continue
                    leases += (Held(partition, epoch, got, url, "waiting", wait),)
                number = max([number, *(got for got, *_ in answer)])
                holds = put(shard.holds, partition, (epoch, number))
                return self.told(world, leases=leases, holds=holds)

            yield from self.send(self.message("lease", partition, epoch, number), receive)


class _Parser(_Process):
    def __init__(self, world: World, scene: Scene, place: int, parser: Parser) -> None:
        super().__init__(world, scene, place)
        self.parser = parser

    def kept(self, world: World, memory: Parser) -> World:
        return world._replace(
            parsers=(*world.parsers[: self.place], memory, *world.parsers[self.place + 1 :])
        )

    def told(self, world: World, **changes: Any) -> World:
        is_ahead = self.parser.is_ahead or world.snapshot is not None
        return self.kept(world, self.parser._replace(is_ahead=is_ahead, pending=None, **changes))

    def lose(self, world: World, message: Message) -> World:
        # A reclaim that is repeated finds nothing to do.
        is_over = message.step == "reclaim" and self.parser.state == "up"
        return world if is_over else self.kept(world, self.parser._replace(pending=message))

    def message(self, step: str, *arguments: Any) -> Message:
        return Message(step, self.parser.process, -1, arguments)

    @property
    def disk(self) -> Disk:
        return self.world.disks[self.parser.disk]

    def on_disk(self, world: World, disk: Disk) -> World:
        at = self.parser.disk
        return world._replace(disks=(*world.disks[:at], disk, *world.disks[at + 1 :]))

    def steps(self) -> Iterator[Step]:
        world, parser = self.world, self.parser
        who = parser.process
        if parser.state == "down":
            fresh = Parser(parser.name, parser.disk, parser.life + 1)
            yield Step(f"{parser.name} restarts", self.kept(world, fresh))
        elif parser.state == "abandoning":
            yield from self._abandon()
        elif parser.was_set_back and parser.state == "up":
            # A reclaim, and a recovery that has begun, do not look for one.
            yield from self._reclaim()
            if "parsers start over" in self.without:
                yield Step(f"{who} continues", self.kept(world, parser._replace(was_set_back=False)))
            else:
                yield Step(f"{who} notices the set-back", self.started_over(world))
        else:
            for step in self._sends():
                if not parser.pending or (step.message and step.message.step == parser.pending.step):
                    yield step

    def _sends(self) -> Iterator[Step]:
        if self.parser.state in ("starting", "recovering"):
            yield from self._recover()
        else:
            yield from self._take()
            yield from self._store()
            yield from self._reclaim()

    def started_over(self, world: World) -> World:
        """Drop the open segment and what we know; then return what Redis says is ours."""
        parser, disk = self.parser, world.disks[self.parser.disk]
        disk = disk._replace(parts=put(disk.parts, parser.open_segment, None))
        dropped = parser._replace(
            state="abandoning",
            held=(),
            rows=0,
            segment=parser.segment + bool(parser.rows),
            unnamed=None,
            known=frozenset(),
            late_links=(),
            files=None,
            records=None,
            pending=None,
        )
        return self.kept(self.on_disk(world, disk), dropped)

    def _abandon(self) -> Iterator[Step]:
        """Return the pages taken; then begin again, after a set-back or a fence under another name."""
        parser, who = self.parser, self.parser.process
        beat = get(self.world.redis.parsers, who)
        if "another name" in self.without:
            beat = None
        if parser.pending or beat is not None:
            message = parser.pending or self.message("reclaim", who, beat)
            yield from self.send(message, lambda world, answer: self.begun(world))
        else:
            yield Step(f"{who} has nothing to return", self.begun(self.world))

    def begun(self, world: World) -> World:
        parser = self.parser
        same = "another name" in self.without
        return self.kept(
            world,
            parser._replace(
                state="starting",
                restarts=parser.restarts + (not same),
                heartbeat=parser.heartbeat + same,
                pending=None,
                # From now on what Redis holds is what it knows.
                was_set_back=False,
                is_ahead=False,
            ),
        )

    def _recover(self) -> Iterator[Step]:
        """List files, then read the living and the recorded, then act: in this order."""
        parser, disk = self.parser, self.disk
        who = parser.process
        if parser.state == "starting":
            yield from self.send(
                self.message("register", who, parser.heartbeat),
                lambda world, answer: self.told(world, state="recovering"),
            )
        elif parser.files is None:
            files = frozenset(name for name, _ in disk.parts), frozenset(name for name, _ in disk.published)
            if files == (frozenset(), frozenset()):
                yield Step(f"{who} finds no files", self.kept(self.world, parser._replace(state="up")))
            else:
                yield Step(f"{who} lists files", self.kept(self.world, parser._replace(files=files)))
        elif parser.records is None:
            redis = self.world.redis
            records = frozenset(name for name, _ in redis.parsers), redis.segments
            yield Step(f"{who} reads records", self.told(self.world, records=records))
        else:
            (parts, published), (living, recorded) = parser.files, parser.records
            for name, pages in disk.parts:
                if name in parts and name in recorded:
                    disk = Disk(put(disk.parts, name, None), put(disk.published, name, pages))
                elif name in parts and name.partition("-")[0] not in living and not self.is_locked(name):
                    disk = disk._replace(parts=put(disk.parts, name, None))
            for name in published:
                if name not in recorded and "withdrawal" not in self.without:
                    disk = disk._replace(published=put(disk.published, name, None))
            done = parser._replace(state="up", files=None, records=None)
            yield Step(f"{who} recovers", self.on_disk(self.kept(self.world, done), disk))

    def is_locked(self, segment: str) -> bool:
        """Whether its parser lives and has not dropped it."""
        if "files of the living are kept" in self.without:
            return False
        others = [parser for parser in self.world.parsers if parser.state != "down"]
        return any(p.open_segment == segment or (p.unnamed or "")[:1] == (segment,) for p in others)

    def _take(self) -> Iterator[Step]:
        parser = self.parser
        if parser.rows < len(parser.held) or parser.unnamed or parser.late_links:
            return
        own = get(self.world.redis.taken, parser.process, ())
        if not self.world.redis.pages and len(own) == len(parser.held):
            return
        yield from self.send(
            self.message("take", parser.process, len(parser.held)),
            lambda world, answer: (
                self.started_over(world)
                if isinstance(answer, Fenced)
                else self.written(self.told(world, held=parser.held + answer))
            ),
        )

    def links(self, parser: Parser) -> tuple[str, ...]:
        """The links of the pages taken that are not in the open segment yet."""
        found = [link for url in parser.held[parser.rows :] for link in self.scene.web[url]]
        return tuple(link for link in dict.fromkeys(found) if link not in parser.known)

    def written(self, world: World) -> World:
        """Write the pages taken into the open segment, if their links are safe."""
        parser, disk = world.parsers[self.place], world.disks[self.parser.disk]
        links = self.links(parser)
        if links and "links before commit" not in self.without:
            return world
        disk = disk._replace(parts=put(disk.parts, parser.open_segment, parser.held))
        parser = parser._replace(rows=len(parser.held), late_links=links)
        return self.on_disk(self.kept(world, parser), disk)

    def _store(self) -> Iterator[Step]:
        parser = self.parser
        who, name, pages = parser.process, parser.open_segment, parser.held[: parser.rows]
        if parser.unnamed:
            yield Step(
                f"{who} renames {parser.unnamed[0]}",
                self.renamed(self.kept(self.world, parser._replace(unnamed=None)), *parser.unnamed),
            )
            return
        links = parser.late_links if not parser.held else self.links(parser)
        if links:
            # One partition: the scenes with links between domains of two have no parsers.
            yield from self.send(
                Message("admit", who, self.scene.partitions[domain_of(links[0])], (links,)),
                lambda world, answer: self.written_after(world, links),
            )
        elif parser.rows and parser.rows == len(parser.held):
            if "record before rename" in self.without and get(self.disk.parts, name):
                yield Step(f"{who} renames {name}", self.renamed(self.world, name, pages))
                return
            unnamed = None if "record before rename" in self.without else (name, pages)
            yield from self.send(
                self.message("commit", who, name, parser.rows),
                lambda world, answer: (
                    self.started_over(world)
                    if isinstance(answer, Fenced)
                    else self.told(
                        world,
                        held=(),
                        rows=0,
                        segment=parser.segment + 1,
                        unnamed=unnamed,
                    )
                ),
            )

    def written_after(self, world: World, links: tuple[str, ...]) -> World:
        known = self.parser.known | set(links)
        return self.written(self.told(world, known=known, late_links=()))

    def renamed(self, world: World, name: str, pages: tuple[str, ...]) -> World:
        disk = self.disk
        if get(disk.parts, name) is None:
            # Another process has, or it is gone.
            return world
        return self.on_disk(world, Disk(put(disk.parts, name, None), put(disk.published, name, pages)))

    def _reclaim(self) -> Iterator[Step]:
        for other in self.world.parsers:
            for name, heartbeat in self.world.redis.parsers:
                if name == self.parser.process or not name.startswith(other.name):
                    continue
                is_dead = other.state == "down" or name != other.process
                world = self.world if is_dead else _spend(self.world, "silence")
                if world is None:
                    continue
                acting = _Parser(world, self.scene, self.place, self.parser)
                for step in acting.send(
                    self.message("reclaim", name, heartbeat),
                    lambda world, answer: self.told(world, state="recovering"),
                ):
                    yield step._replace(is_fault=step.is_fault or not is_dead)


def _ideal_fetch(world: World, scene: Scene) -> Iterator[Step]:
    """Fetch one URL and settle it, at once, as one step of Redis."""
    for n, part in enumerate(world.redis.partitions):
        for name, state in part.domains:
            if state.waiting:
                url, *rest = state.waiting
                fetched = state._replace(waiting=tuple(rest), is_ready=bool(rest))
                part = part._replace(domains=put(part.domains, name, fetched), number=part.number + 1)
                pages = world.redis.pages + ((url,) if not isinstance(scene.web[url], str) else ())
                redis = _with_partition(world.redis, n, part)._replace(pages=pages)
                message = Message("fetch", "ideal", n, (url,))
                yield Step(f"{url} is fetched", world._replace(redis=redis), message=message)


def _ideal_store(world: World, scene: Scene) -> Iterator[Step]:
    """Store the first page of the queue and admit its links, at once, as one step of Redis."""
    if not world.redis.pages:
        return
    page, *rest = world.redis.pages
    redis = world.redis
    for link in scene.web[page]:
        n = scene.partitions[domain_of(link)]
        redis = _with_partition(redis, n, admit(redis.partitions[n], (link,))[0])
    broken = f"{page} is stored twice" if page in redis.stored else ""
    redis = redis._replace(pages=tuple(rest), stored=tuple(sorted((*redis.stored, page))))
    yield Step(
        f"{page} is stored",
        world._replace(redis=redis),
        broken=broken,
        message=Message("store", "ideal", -1, (page,)),
    )


def _with_partition(redis: Redis, n: int, part: Any) -> Redis:
    return redis._replace(partitions=(*redis.partitions[:n], part, *redis.partitions[n + 1 :]))


def _expiries(world: World) -> Iterator[Step]:
    """A hold expires if its owner does not renew it: no sooner than its last request begins."""
    for n, part in enumerate(world.redis.partitions):
        if not part.owner or part.has_expired:
            continue
        owner = next((s for s in world.shards if s.owner == part.owner and s.state != "down"), None)
        if owner and owner.state == "up" and owner.may_fetch and get(owner.holds, n):
            continue
        redis = _with_partition(world.redis, n, part._replace(has_expired=True))
        shards = tuple(s._replace(has_lapsed=True) if s == owner else s for s in world.shards)
        expired = world._replace(redis=redis, shards=shards)
        yield Step(f"the hold of {part.owner} expires", expired)


def _faults(world: World, without: frozenset[str]) -> Iterator[Step]:
    if world.snapshot is None and (spent := _spend(world, "set-back")):
        ready = spent._replace(
            snapshot=world.redis,
            shards=tuple(shard._replace(is_ahead=False) for shard in world.shards),
            parsers=tuple(parser._replace(is_ahead=False) for parser in world.parsers),
        )
        yield Step("Redis will come back to this", ready, True)
    if world.snapshot is not None and world.snapshot != world.redis:
        yield Step("Redis is set back", _set_back(world, world.snapshot, without), True)
    if get(world.faults, "crash"):
        spent = _spend(world, "crash")
        assert spent is not None
        for n, shard in enumerate(world.shards):
            if shard.state != "down":
                rests = world.rests
                for held in shard.leases:
                    if held.state == "in flight":
                        rests = put(rests, domain_of(held.url), DELAY)
                dead = Shard(shard.name, shard.life, state="down", map=shard.map)
                shards = (*world.shards[:n], dead, *world.shards[n + 1 :])
                crashed = spent._replace(shards=shards, rests=rests)
                yield Step(f"{shard.owner} crashes", crashed, True)
        for n, parser in enumerate(world.parsers):
            if parser.state != "down":
                gone = Parser(parser.name, parser.disk, parser.life, "down")
                parsers = (*world.parsers[:n], gone, *world.parsers[n + 1 :])
                yield Step(f"{parser.process} crashes", spent._replace(parsers=parsers), True)
    if spent := _spend(world, "suspension"):
        for n, shard in enumerate(world.shards):
            if shard.state == "up":
                asleep = shard._replace(state="suspended")
                shards = (*world.shards[:n], asleep, *world.shards[n + 1 :])
                yield Step(f"{shard.owner} is suspended", spent._replace(shards=shards), True)
    if spent := _spend(world, "resize"):
        for n, name in enumerate(world.redis.map):
            for other in world.shards:
                if other.name != name:
                    new = (*world.redis.map[:n], other.name, *world.redis.map[n + 1 :])
                    redis = world.redis._replace(map=new)
                    what = f"partition {n} is to be {other.name}'s"
                    yield Step(what, spent._replace(redis=redis), True)


def _set_back(world: World, snapshot: Redis, without: frozenset[str]) -> World:
    """Redis holds older data; messages on their way to the old server are gone."""
    return world._replace(
        redis=snapshot,
        snapshot=None,
        server=world.server + 1,
        late=(),
        shards=tuple(
            s._replace(
                was_set_back=s.was_set_back or s.is_ahead,
                has_new_server=s.state != "down",
                calm=s.calm if "calm after a restart" in without else GRACE + 1,
            )
            for s in world.shards
        ),
        parsers=tuple(p._replace(was_set_back=p.was_set_back or p.is_ahead) for p in world.parsers),
    )
