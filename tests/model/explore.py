"""Explores every world that a scene can come to; finds the shortest way to a broken promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.model.processes import Step, next_steps
from tests.model.steps import admit
from tests.model.world import Scene, World


@dataclass
class Found:
    """What an exploration came to. ``broken``: the first promise broken, ``schedule``: the way to it."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    is_complete: bool = False
    broken: str = ""
    schedule: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        how = "all states" if self.is_complete else f"to depth {self.depth}"
        return f"{self.states} states, {self.transitions} transitions, depth {self.depth} ({how})"


class Explorer:
    """Explores *scene*. Every state is also followed to its end, without further faults."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        #: World -> the one before, and the step between.
        self.came_from: dict[World, tuple[World, str] | None] = {}
        #: Worlds that end well if nothing more goes wrong.
        self._ends_well: set[World] = set()
        #: The steps from worlds that were followed, and not explored yet.
        self._steps: dict[World, list[Step]] = {}

    def explore(self, kinds: str = "") -> Found:
        """Stop at the first broken promise, or the first that contains *kinds*."""
        found = Found()
        start = self.scene.start()
        start = start if start.shards else seeded(start, self.scene)
        for what in self.scene.after:
            start = next(step.world for step in next_steps(start, self.scene) if step.what == what)
        self.came_from = {start: None}
        layer = [start]
        while layer and (not self.scene.depth or found.depth < self.scene.depth):
            following: list[World] = []
            for world in layer:
                steps = self._steps.pop(world, None) or list(next_steps(world, self.scene))
                found.transitions += len(steps)
                for step in steps:
                    if step.broken and kinds in step.broken:
                        found.states = len(self.came_from)
                        found.broken, found.schedule = step.broken, [*self.way_to(world), step.what]
                        return found
                    if step.world not in self.came_from:
                        self.came_from[step.world] = world, step.what
                        following.append(step.world)
                broken, way = self._follow(world, steps)
                if broken and kinds in broken:
                    found.states = len(self.came_from)
                    found.broken, found.schedule = broken, [*self.way_to(world), *way]
                    return found
            layer = following
            found.depth += bool(layer)
        found.states = len(self.came_from)
        found.is_complete = not layer
        return found

    def way_to(self, world: World) -> list[str]:
        way = []
        while (came := self.came_from[world]) is not None:
            world, what = came
            way.append(what)
        return way[::-1]

    def _follow(self, world: World, steps: list[Step]) -> tuple[str, list[str]]:
        """Let *world* come to its end. Returns the promise that is broken then, and the way."""
        path: list[World] = []
        way: list[str] = ["-- no more faults --"]
        passed: set[World] = set()
        while world not in self._ends_well:
            if world in passed:
                return "the run does not end: it goes in circles", way
            path.append(world)
            passed.add(world)
            onward = next((step for step in steps if not step.is_fault and step.world != world), None)
            if onward is None:
                broken = judge_end(world, self.scene)
                if broken:
                    return broken, way
                break
            if onward.broken:
                return onward.broken, [*way, onward.what]
            way.append(onward.what)
            world = onward.world
            steps = self._steps[world] = self._steps.get(world) or list(next_steps(world, self.scene))
        self._ends_well.update(path)
        return "", []


def seeded(world: World, scene: Scene) -> World:
    """Return *world* with its seeds admitted: a scene without shards begins so."""
    [part] = world.redis.partitions
    part = admit(part, scene.seeds)[0]
    return world._replace(redis=world.redis._replace(partitions=(part,)))


def judge_end(world: World, scene: Scene) -> str:
    """Return the promise broken in a world where nothing more happens."""
    redis = world.redis
    leased = [url for part in redis.partitions for _, url in part.leases]
    waiting = [url for part in redis.partitions for _, state in part.domains for url in state.waiting]
    if leased or waiting or redis.pages or redis.taken:
        return f"the run does not end: leased {leased}, waiting {waiting}, {redis.pages}, {redis.taken}"
    files = [item for disk in world.disks for item in disk.published]
    stored = Counter(redis.stored)
    for _, pages in files:
        stored.update(pages)
    if lost := [page for page in scene.pages if page not in stored]:
        return f"lost: {lost}"
    if twice := [page for page, times in stored.items() if times > 1]:
        return f"stored twice: {twice}"
    if world.parsers and {name for name, _ in files} != redis.segments:
        return f"recorded {sorted(redis.segments)}, but published {files}"
    return ""
