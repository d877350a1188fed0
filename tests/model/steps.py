"""Redis as a value, and the Lua steps as functions of it: old value and message in, new value and answer out.

All times are ticks from now, so that two states that differ only in the date are one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: Ticks between the end of a request and the next of its domain.
DELAY = 1
#: The most ticks a request may take.
FLIGHT = 2
#: The ticks within which a shard that is alive notices a set-back; `acquire_partition` has it in ms.
GRACE = 1
#: Most URLs of a lease step, and most pages of a take.
ROOM = 2
#: In place of a page: the URL of the lease waits again.
BACK = "back"


class Domain(NamedTuple):
    next: int = 0
    out: int = 0
    is_ready: bool = False
    waiting: tuple[str, ...] = ()


class Partition(NamedTuple):
    owner: str = ""
    #: Number and owner.
    epoch: tuple[int, str] = (0, "")
    number: int = 0
    #: Whether the time until which it is owned has passed.
    has_expired: bool = False
    #: The server in which it was acquired; at first, that in which the run was created.
    server: int = 0
    #: Ticks in which nothing is leased.
    rested: int = 0
    domains: tuple[tuple[str, Domain], ...] = ()
    seen: frozenset[str] = frozenset()
    #: Number and URL.
    leases: tuple[tuple[int, str], ...] = ()


class Redis(NamedTuple):
    partitions: tuple[Partition, ...]
    #: The shard that each partition belongs to.
    map: tuple[str, ...]
    pages: tuple[str, ...] = ()
    taken: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: Parser and heartbeat.
    parsers: tuple[tuple[str, int], ...] = ()
    segments: frozenset[str] = frozenset()
    #: Pages stored by the ideal parser of a scene without parsers.
    stored: tuple[str, ...] = ()


class Message(NamedTuple):
    """A step as it is sent: it may be carried out never, once, or again later."""

    step: str
    sender: str
    #: -1 for a step of the page queue.
    partition: int
    arguments: tuple[Any, ...]


class Fenced(NamedTuple):
    """An answer: the step was refused."""

    why: str


def domain_of(url: str) -> str:
    """The model's URLs are a letter, which is the domain, and a digit."""
    return url[0]


def put(items: tuple[tuple[Any, Any], ...], key: Any, value: Any) -> tuple[tuple[Any, Any], ...]:
    """Return *items* with *value* at *key*, in order; None removes it."""
    others = [item for item in items if item[0] != key]
    return tuple(sorted([*others, (key, value)] if value is not None else others))


def get(items: tuple[tuple[Any, Any], ...], key: Any, default: Any = None) -> Any:
    return next((value for name, value in items if name == key), default)


def carry_out(redis: Redis, message: Message, server: int, without: frozenset[str]) -> tuple[Redis, Any]:
    """Return what Redis holds after *message*, and its answer. *without* are the fixes taken out."""
    if message.partition < 0:
        is_unknown = get(redis.parsers, message.sender) is None
        if message.step == "take" and is_unknown and "a name is used once" not in without:
            return redis, Fenced(f"{message.sender} was reclaimed")
        return PAGE_STEPS[message.step](redis, *message.arguments)
    old = redis.partitions[message.partition]
    if message.step == "admit":
        new, answer = admit(old, *message.arguments)
    elif message.step == "rest":
        new, answer = rest(old, without, *message.arguments)
    elif message.step == "acquire":
        new, answer = acquire(old, message.sender, server, without, *message.arguments)
    else:
        epoch, *arguments = message.arguments
        is_current = old.epoch[0] == epoch[0] if "owner in epoch" in without else old.epoch == epoch
        if not is_current and message.step == "release":
            return redis, 0
        if not is_current:
            return redis, Fenced(f"epoch {epoch} is over, now {old.epoch}")
        new, answer = OWNER_STEPS[message.step](old, *arguments)
        if message.step == "settle":
            redis = redis._replace(pages=redis.pages + answer)
    if new is not old:
        redis = redis._replace(
            partitions=tuple(new if n == message.partition else p for n, p in enumerate(redis.partitions))
        )
    return redis, answer


# -- the frontier --


def admit(old: Partition, urls: tuple[str, ...]) -> tuple[Partition, int]:
    new = [url for url in urls if url not in old.seen]
    domains = old.domains
    for url in new:
        name = domain_of(url)
        state = get(domains, name, Domain())
        state = state._replace(waiting=(*state.waiting, url), is_ready=state.is_ready or not state.out)
        domains = put(domains, name, state)
    return old._replace(domains=domains, seen=old.seen | set(new)) if new else old, len(new)


def lease(old: Partition, received: int) -> tuple[Partition, tuple[tuple[int, str, int], ...]]:
    if old.rested:
        return old, ()
    # Those whose answer was lost, then new ones.
    lent = [(n, url, get(old.domains, domain_of(url)).next) for n, url in old.leases if n > received]
    number, leases, domains = old.number, old.leases, old.domains
    for name, state in sorted(old.domains, key=lambda item: (item[1].next, item[0])):
        if state.is_ready and state.next == 0 and len(lent) < ROOM:
            number += 1
            url, *rest = state.waiting
            leases += ((number, url),)
            domains = put(domains, name, Domain(state.next, state.out + 1, False, tuple(rest)))
            lent.append((number, url, state.next))
    if number == old.number:
        return old, tuple(lent)
    return old._replace(number=number, leases=leases, domains=domains), tuple(lent)


def settle(
    old: Partition, settlements: tuple[tuple[int, str, int, str], ...]
) -> tuple[Partition, tuple[str, ...]]:
    """Each settlement: number, URL, wait, page ("": none, BACK: unfetched). Answers with the pages queued."""
    leases, domains, pages = old.leases, old.domains, []
    for number, url, wait, page in settlements:
        if (number, url) not in leases:
            continue
        leases = tuple(held for held in leases if held != (number, url))
        name = domain_of(url)
        state = get(domains, name)
        waiting = (url, *state.waiting) if page == BACK else state.waiting
        state = state._replace(next=max(state.next, wait), out=state.out - 1, waiting=waiting)
        is_ready = state.is_ready or (state.out == 0 and bool(state.waiting))
        domains = put(domains, name, state._replace(is_ready=is_ready))
        pages += [page] if page not in ("", BACK) else []
    if leases == old.leases:
        return old, ()
    return old._replace(leases=leases, domains=domains), tuple(pages)


def rest(
    old: Partition, without: frozenset[str], waits: tuple[tuple[str, int], ...]
) -> tuple[Partition, None]:
    domains = old.domains
    for name, wait in waits:
        state = get(domains, name)
        if state is None and "rests of unknown domains" in without:
            continue
        state = state or Domain()
        domains = put(domains, name, state._replace(next=max(state.next, wait)))
    return old._replace(domains=domains) if domains != old.domains else old, None


def acquire(
    old: Partition,
    owner: str,
    server: int,
    without: frozenset[str],
    heir_of: tuple[str, ...],
    was_ours: bool | None,
) -> tuple[Partition, tuple[tuple[int, str], int, int] | None]:
    """Answers with epoch, number, and for how long requests of others may still be in flight.

    None: another shard owns it.
    """
    is_dead = old.owner in heir_of or old.owner.partition(".")[0] in heir_of
    if old.owner not in ("", owner) and not old.has_expired and not is_dead:
        return old, None
    if old.owner == owner:
        return old._replace(has_expired=False, server=server), (old.epoch, old.number, 0)
    domains, flight = old.domains, 0 if is_dead else FLIGHT
    others = flight if old.owner else 0

    def rested(name: str, least: int) -> Domain:
        state = get(domains, name, Domain())
        wait = max(DELAY, least) if "delay and flight" in without else DELAY + least
        return state._replace(next=max(state.next, wait))

    for _, url in reversed(old.leases):
        state = rested(domain_of(url), flight)
        state = state._replace(out=0, is_ready=True, waiting=(url, *state.waiting))
        domains = put(domains, domain_of(url), state)
    epoch = (old.epoch[0] + 1, owner)
    until = old.rested
    # Another server than the last time may have lost requests of a moment ago: every domain rests.
    is_unsure = old.server != server and not (old.epoch[0] == 0 and "unsure at first" in without)
    if is_unsure and "rests after a set-back" not in without:
        least = others = FLIGHT if was_ours is False else others if was_ours is None else 0
        least = max(0 if "flight after a set-back" in without else least, GRACE)
        if "nothing is leased at first" not in without:
            until = least + DELAY
        for name, state in domains:
            if state.is_ready:
                domains = put(domains, name, rested(name, least))
    new = Partition(owner, epoch, old.number, False, server, until, domains, old.seen, ())
    return new, (epoch, old.number, others)


def renew(old: Partition) -> tuple[Partition, int]:
    return old._replace(has_expired=False), 1


def release(old: Partition) -> tuple[Partition, int]:
    return old._replace(owner="", has_expired=False), 1


OWNER_STEPS: dict[str, Any] = {"lease": lease, "settle": settle, "renew": renew, "release": release}


# -- the page queue --


def register(redis: Redis, parser: str, heartbeat: int) -> tuple[Redis, int]:
    return redis._replace(parsers=put(redis.parsers, parser, heartbeat)), 1


def take(redis: Redis, parser: str, held: int) -> tuple[Redis, tuple[str, ...] | Fenced]:
    own = get(redis.taken, parser, ())
    if len(own) < held:
        return redis, Fenced(f"the pages of {parser} were reclaimed")
    pages = redis.pages
    if len(own) == held:
        own, pages = own + pages[:ROOM], pages[ROOM:]
    redis = redis._replace(pages=pages, taken=put(redis.taken, parser, own or None))
    return redis, own[held : held + ROOM]


def commit(redis: Redis, parser: str, segment: str, count: int) -> tuple[Redis, int | Fenced]:
    own = get(redis.taken, parser, ())
    if segment in redis.segments:
        return redis, 0
    if len(own) < count:
        return redis, Fenced(f"the pages of {segment} were reclaimed")
    taken = put(redis.taken, parser, own[count:] or None)
    return redis._replace(taken=taken, segments=redis.segments | {segment}), 1


def reclaim(redis: Redis, parser: str, heartbeat: int) -> tuple[Redis, int]:
    if get(redis.parsers, parser) != heartbeat:
        return redis, -1
    own = get(redis.taken, parser, ())
    return (
        redis._replace(
            pages=own + redis.pages,
            taken=put(redis.taken, parser, None),
            parsers=put(redis.parsers, parser, None),
        ),
        len(own),
    )


PAGE_STEPS: dict[str, Any] = {"register": register, "take": take, "commit": commit, "reclaim": reclaim}


def pass_time(redis: Redis) -> Redis:
    """Return what Redis holds a tick later."""
    if not any(part.rested or any(state.next for _, state in part.domains) for part in redis.partitions):
        return redis
    return redis._replace(
        partitions=tuple(
            part._replace(
                rested=max(0, part.rested - 1),
                domains=tuple(
                    (name, state._replace(next=max(0, state.next - 1))) for name, state in part.domains
                ),
            )
            for part in redis.partitions
        )
    )
