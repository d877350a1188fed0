"""When Redis counts as short of room."""

from __future__ import annotations

from crawlproj.redisio.room import Memory, Room


def test_redis_is_short_of_room_from_the_share_on_until_it_is_a_little_below() -> None:
    room = Room(0.85)

    seen = [room.update(Memory(used, 1000)) for used in (849, 850, 840, 830, 824, 840, 1100)]

    assert seen == [False, True, True, True, False, False, True]


def test_without_a_limit_it_is_never_short_of_room() -> None:
    assert not Room(0.1).update(Memory(10**12, 0))
