"""The scenes that are explored: where every promise holds, and one without each fix."""

from __future__ import annotations

from dataclasses import replace

from tests.model.world import Scene

#: A page that links to another; a page whose link redirects back to its domain; a page with two links.
CHAIN: dict[str, tuple[str, ...] | str] = {"a1": ("a2",), "a2": ()}
DETOUR: dict[str, tuple[str, ...] | str] = {"a1": ("b1",), "b1": "a2", "a2": ()}
FORK: dict[str, tuple[str, ...] | str] = {"a1": ("a2", "b1"), "a2": (), "b1": ()}
#: As `partition_of` has them, if there are two.
APART = {"a": 1, "b": 0}


def scene(name: str, web: dict[str, tuple[str, ...] | str] = CHAIN, **options: object) -> Scene:
    return Scene(name, web, ("a1",), **options)  # type: ignore[arg-type]


_FORGOTTEN = scene(
    "a domain that Redis forgot rests", DETOUR, shards="A", partitions=APART, faults={"set-back": 1}
)
_NOTHING_WAITING = scene(
    "set-back and crash: what has nothing waiting rests", shards="A", faults={"set-back": 1, "crash": 1}
)
_SLOW = scene("a hold expires while its shard waits for its requests", shards="AB", faults={"set-back": 1})
_MOVED = scene("a partition moved in what Redis lost", shards="AB", faults={"set-back": 1, "resize": 1})
_AGAIN = scene(
    "set back again while a request is in flight",
    {"a1": ()},
    shards="AB",
    faults={"set-back": 2, "resize": 1},
    after=(
        "A0.0 admit ('a1',)",
        "Redis will come back to this",
        "partition 0 is to be B's",
        "B0.0 reads the map",
        "B0.0 acquire () None",
        "B0.0 lease (1, 'B0.0') 0",
        "B0.0 requests a1",
        "Redis is set back",
    ),
)
_SUSPENDED = scene(
    "a suspended shard whose requests Redis forgot",
    {"a1": ()},
    shards="AB",
    faults={"set-back": 1, "suspension": 1},
)
_LATE_COMMIT = scene(
    "a late commit finds no pages taken after it was refused",
    parsers="PQ",
    faults={"silence": 1, "late copy": 1},
    late=("commit",),
)

_REMOVED = scene(
    "a parser whose pages were reclaimed commits its file after a set-back",
    {"a1": ()},
    parsers="PQ",
    faults={"set-back": 1, "silence": 1},
)
_LATE_TAKE = scene(
    "a late take gives a reclaimed parser no pages",
    parsers="PQ",
    faults={"silence": 1, "late copy": 1},
    late=("take",),
)

#: All states of these are explored by every run of the tests.
SCENES = [
    scene("two shards, crash", DETOUR, shards="AB", partitions=APART, faults={"crash": 1}),
    scene("two shards, resize, late copy", shards="AB", faults={"resize": 1, "late copy": 1}),
    scene("two shards, suspension, lost answer", shards="AB", faults={"suspension": 1, "lost answer": 1}),
    scene(
        "a shard, set-back, lost answer, late copy",
        shards="A",
        faults={"set-back": 1, "lost answer": 1, "late copy": 1},
    ),
    scene(
        "a parser, set-back, crash, lost answer",
        parsers="P",
        faults={"set-back": 1, "crash": 1, "lost answer": 1},
    ),
    scene("two parsers, crash", parsers="PQ", faults={"crash": 1}),
    scene("two parsers, silence, lost answer", parsers="PQ", faults={"silence": 1, "lost answer": 1}),
    scene("two parsers, late copy", parsers="PQ", faults={"late copy": 1}),
    scene("two parsers, a page, set-back", {"a1": ()}, parsers="PQ", faults={"set-back": 1}),
    scene("a shard and a parser, set-back", shards="A", parsers="P", faults={"set-back": 1}),
    # Former defects.
    _FORGOTTEN,
    _NOTHING_WAITING,
    _SLOW,
    _LATE_COMMIT,
    _AGAIN,
    _REMOVED,
    _LATE_TAKE,
]
#: These as well, with MODEL_DEEP=1: all states, or to the depth given.
DEEP = [
    # Another former defect.
    _SUSPENDED,
    scene("two parsers, set-back", parsers="PQ", faults={"set-back": 1}),
    _MOVED,
    scene("two parsers with a disk each, set-back", parsers="PQ", disks=(0, 1), faults={"set-back": 1}),
    scene(
        "two shards, suspension, lost answer, late copy",
        shards="AB",
        faults={"suspension": 1, "lost answer": 1, "late copy": 1},
    ),
    scene(
        "two shards, two crashes",
        DETOUR,
        shards="AB",
        partitions=APART,
        faults={"crash": 2, "lost answer": 1},
    ),
    scene("a shard, two set-backs", shards="A", faults={"set-back": 2}),
    scene(
        "a parser, everything",
        parsers="P",
        faults={"set-back": 1, "crash": 1, "lost answer": 1, "late copy": 1},
    ),
    scene("two parsers, set-back, crash", parsers="PQ", faults={"set-back": 1, "crash": 1}, depth=16),
    scene(
        "a shard and a parser, set-back, lost answer",
        shards="A",
        parsers="P",
        faults={"set-back": 1, "lost answer": 1},
    ),
]

#: Every transition of these is replayed in a real Redis; of all SCENES with MODEL_DEEP=1.
REPLAYED = [
    scene("a shard, set-back", shards="A", faults={"set-back": 1}),
    scene("two shards, resize, late copy", shards="AB", faults={"resize": 1, "late copy": 1}),
    scene("two shards, suspension", shards="AB", faults={"suspension": 1}),
    scene("a parser, set-back", parsers="P", faults={"set-back": 1}),
    scene("two parsers", parsers="PQ"),
    scene("a parser, lost answer, late copy", parsers="P", faults={"lost answer": 1, "late copy": 1}),
]


def without(scene: Scene, *fixes: str) -> Scene:
    return replace(scene, name=f"without {', '.join(fixes)}", without=frozenset(fixes))


_SHARD = scene("", shards="A", faults={"set-back": 1})
_PARSER = scene("", parsers="P", faults={"set-back": 1})
#: Scene -> what must be found.
MUTATIONS = [
    # With `shards start over` in place the epoch alone is never needed: both must be gone to see it.
    (
        without(
            scene("", shards="AB", faults={"set-back": 1, "crash": 1}), "owner in epoch", "shards start over"
        ),
        "accepted, owner is",
    ),
    (without(_SHARD, "shards start over"), "does not end: leased ['a1']"),
    (without(replace(_SHARD, web=FORK), "leases by token", "shards start over"), "stored twice"),
    (without(_PARSER, "parsers start over"), "lost"),
    (without(_PARSER, "parsers start over"), "stored twice"),
    (without(_PARSER, "withdrawal"), "stored twice"),
    (
        without(
            scene("", {"a1": "a2", "a2": ()}, shards="A", faults={"crash": 1}), "candidates before settlement"
        ),
        "lost",
    ),
    (without(scene("", parsers="P", faults={"crash": 1}), "links before commit"), "lost"),
    (without(scene("", parsers="PQ"), "record before rename"), "lost"),
    (without(_NOTHING_WAITING, "rests after a set-back"), "requested too soon"),
    (without(_MOVED, "rests are published"), "two requests of a in flight"),
    (
        without(_FORGOTTEN, "rests of unknown domains", "nothing is leased at first"),
        "b is requested too soon",
    ),
    (without(_NOTHING_WAITING, "unsure at first"), "a is requested too soon"),
    (without(_NOTHING_WAITING, "nothing is leased at first"), "a is requested too soon"),
    (without(_SLOW, "flight after a set-back", "rests are published"), "two requests of a in flight"),
    (
        without(scene("", shards="AB", faults={"suspension": 1}), "delay and flight"),
        "a is requested too soon",
    ),
    (without(_LATE_COMMIT, "another name"), "lost"),
    (without(_REMOVED, "files of the living are kept"), "lost"),
    (without(_LATE_TAKE, "a name is used once"), "lost"),
    (without(_SUSPENDED, "leases return after a lapse"), "a is requested too soon"),
    (without(_AGAIN, "calm after a restart"), "two requests of a in flight"),
    (without(_AGAIN, "rests are said again"), "two requests of a in flight"),
    (without(_SUSPENDED, "flight for another's partition"), "two requests of a in flight"),
    (without(_SUSPENDED, "ours after a flight"), "two requests of a in flight"),
]
