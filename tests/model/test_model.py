"""The protocol of frontier and page queue: all interleavings of small worlds, and the same in a real Redis.

With MODEL_DEEP=1 larger worlds are explored, and more transitions replayed. ``pytest -s`` prints how
many states there were, and the shortest schedule to each broken promise.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from crawlproj.redisio.client import RedisClient
from tests.model.explore import Explorer, Found
from tests.model.replay import Replay
from tests.model.scenes import DEEP, MUTATIONS, REPLAYED, SCENES
from tests.model.world import FIXES, Scene

IS_DEEP = bool(os.environ.get("MODEL_DEEP"))


def explored(scene: Scene, kind: str = "") -> Found:
    found = Explorer(scene).explore(kind)
    print(f"\n{scene.name}: {found}")  # noqa: T201
    if found.broken:
        print("\n".join(f"    {step}" for step in [*found.schedule, f"=> {found.broken}"]))  # noqa: T201
    return found


@pytest.mark.timeout(1800 if IS_DEEP else 600)
@pytest.mark.parametrize("scene", SCENES + DEEP * IS_DEEP, ids=lambda scene: scene.name)
def test_no_interleaving_breaks_a_promise(scene: Scene) -> None:
    found = explored(scene)

    assert not found.broken, found.schedule
    assert found.is_complete or found.depth == scene.depth


@pytest.mark.parametrize(("scene", "broken"), MUTATIONS, ids=lambda value: getattr(value, "name", None))
def test_without_a_fix_the_explorer_finds_what_it_prevents(scene: Scene, broken: str) -> None:
    assert broken in explored(scene, broken).broken


def test_every_fix_is_taken_out_once() -> None:
    assert set().union(*(scene.without for scene, _ in MUTATIONS)) >= FIXES


@pytest.mark.timeout(1800 if IS_DEEP else 600)
@pytest.mark.parametrize(
    "scene", REPLAYED + [one for one in SCENES if one not in REPLAYED] * IS_DEEP, ids=lambda scene: scene.name
)
async def test_redis_does_what_the_model_does(client: RedisClient, scene: Scene) -> None:
    replay = Replay(client, scene)

    await replay.run_all()

    print(f"\n{scene.name}: {replay.transitions} transitions, {replay.steps} of them steps of Redis")  # noqa: T201
    assert replay.steps


async def test_redis_disagrees_with_a_model_that_lacks_a_fix(client: RedisClient) -> None:
    wrong = replace(REPLAYED[0], without=frozenset({"rests after a set-back"}))

    with pytest.raises(AssertionError, match="acquire"):
        await Replay(client, wrong).run_all()
