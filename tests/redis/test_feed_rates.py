"""How often sites are asked, in simulated time: the feed's clock and the frontier's are the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from crawlproj.config import Config, load_config
from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.feed import Feed
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.gate import Gate, Robots, RobotsFetch
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.frontier.pressure import FeedLimits, QueueLimits
from crawlproj.frontier.robots import RobotsStore
from crawlproj.frontier.robots_turns import RobotsTurns
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.politeness.pacing import DelayRules, Ending, Pacer
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from tests.redis.shards import AGENT, RUN, rules_of

PARTITIONS = 16
START_MS = 1_800_000_000_000
#: Longer than the feed's linger and the way to Redis together.
TURN_S = 0.02
#: Put at once: Redis answers soon, on a busy machine, too.
MOST_PUT = 100_000
#: Puts URLs behind those a domain has: faster than admitting millions of them.
FILL = r"""
local state, first = string.match(redis.call('HGET', KEYS[3], ARGV[2]), '^(.*)\n1(.*)$')
if state then
  redis.call('HSET', KEYS[3], ARGV[2], state .. '\n')
  redis.call('RPUSH', KEYS[1], first)
end
local entries, left = {}, tonumber(ARGV[1])
for i = 1, 1000 do entries[i] = '0 0 s/x' end
while left > 0 do
  redis.call('RPUSH', KEYS[1], unpack(entries, 1, math.min(left, 1000)))
  left = left - 1000
end
redis.call('HINCRBY', KEYS[2], 'waiting', ARGV[1])
redis.call('HINCRBY', KEYS[2], 'admitted', ARGV[1])
"""


@dataclass
class Simulation:
    """A shard with the settings people get, one turn after the other, on a web of *answers*."""

    client: RedisClient
    run: Run
    config: Config
    is_asking_robots: bool = False
    now_s: float = 0.0
    #: When each domain was asked, for a page or for its robots.txt.
    asked_s: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = self.config
        store = RobotsStore(self.client, RUN, PARTITIONS, config.robots_bytes, AGENT, now_ms=self.now_ms)
        cache = RobotsCache(1000, config.robots_seconds, config.backoff_seconds)
        self.frontier = Frontier(self.client, RUN, PARTITIONS, now_ms=self.now_ms)
        self.dispatcher = Dispatcher(
            Pacer(
                DelayRules(
                    1.0,
                    factor=config.delay_factor,
                    max_delay_s=config.max_delay_seconds,
                    backoff_s=config.backoff_seconds,
                    max_backoff_s=config.max_backoff_seconds,
                    give_up=config.give_up_failures,
                    parked_s=config.parked_seconds,
                )
            ),
            Gate(
                self.client,
                RUN,
                PARTITIONS,
                robots=Robots(AGENT, cache, store) if self.is_asking_robots else None,
            ),
            batch=config.lease_batch,
            chain_s=config.chain_seconds,
            max_attempts=config.max_attempts,
            on_work=lambda: None,
            clock=lambda: self.now_s,
        )
        self.robots = RobotsTurns(self.dispatcher)
        self.feed = Feed(
            self.frontier,
            ShardNumber(self.client, RUN, 0, ProcessName.of_this(), 3_600_000),
            self.run.read_map,
            self.dispatcher,
            FeedLimits(
                batch=config.lease_batch,
                chain=config.chain,
                chain_s=config.chain_seconds,
                lease_s=config.lease_seconds,
                shard_lease_s=config.shard_lease_seconds,
                queue=QueueLimits(config.page_queue_soft, config.page_queue_hard),
            ),
            promises=self.run,
            on_stop=lambda reason, error: pytest.fail(f"the feed stopped: {reason} {error}"),
        )

    def now_ms(self) -> int:
        return START_MS + round(self.now_s * 1000)

    async def fill(self, urls: dict[str, int]) -> None:
        """Have so many URLs of each domain wait."""
        await self.frontier.admit(Candidate(f"https://{domain}/") for domain in urls)
        partitions = {domain: partition_of(domain, PARTITIONS) for domain in urls}
        left = {domain: count - 1 for domain, count in urls.items()}
        while left:
            await self.client.pipeline(
                [
                    (
                        "EVAL",
                        FILL,
                        3,
                        f"{keys.queue_prefix(RUN, partitions[domain])}1:{domain}",
                        keys.meta(RUN, partitions[domain]),
                        keys.domains(RUN, partitions[domain]),
                        min(count, MOST_PUT),
                        domain,
                    )
                    for domain, count in left.items()
                ]
            )
            left = {domain: count - MOST_PUT for domain, count in left.items() if count > MOST_PUT}

    async def open(self) -> None:
        await self.feed.number.claim()
        await self.feed._renew()

    async def pass_time(
        self, seconds: float, answer: Callable[[str], Ending], turn_s: float = TURN_S, *, looks: int = 1
    ) -> None:
        """Take turns for so long, each with so many *looks* at what may be fetched.

        Every request ends at once with *answer* of its domain.
        """
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            await self.feed._turn()
            for _ in range(looks):
                while (one := self.dispatcher.take()) is not None:
                    self.asked_s.setdefault(one.domain, []).append(self.now_s)
                    self._end(one, answer(one.domain))
                self.now_s += turn_s / looks

    def _end(self, one: Lease | RobotsFetch, ended: Ending) -> None:
        if isinstance(one, RobotsFetch):
            self.robots.learn(one, rules_of("", ended.status or None), ended)
            return
        again = self.dispatcher.request_ended(one, ended)
        self.dispatcher.settle(Settlement(one, Outcome.RETRY if again else Outcome.DONE))

    @property
    def requests(self) -> int:
        return sum(map(len, self.asked_s.values()))


@pytest.fixture
async def simulate(client: RedisClient) -> AsyncIterator[Callable[..., Simulation]]:
    run = await Run.open(client, RUN, partitions=PARTITIONS, shards=1)
    made: list[Simulation] = []

    def make(*, is_asking_robots: bool = False, **settings: object) -> Simulation:
        made.append(Simulation(client, run, load_config(settings), is_asking_robots))
        return made[-1]

    yield make
    for simulation in made:
        if simulation.dispatcher._timer:
            simulation.dispatcher._timer.cancel()


@pytest.mark.parametrize("is_hot_there", [True, False], ids=["a hot domain", "none"])
async def test_two_thousand_domains_are_fetched_at_the_rate_they_allow_whatever_one_of_them_holds(
    simulate: Callable[..., Simulation], is_hot_there: bool
) -> None:
    simulation = simulate()
    await simulation.fill({f"d{number}.test": 12 for number in range(2000)})
    if is_hot_there:
        await simulation.fill({"hot.test": 99 * 12 * 2000})
    await simulation.open()

    await simulation.pass_time(10.0, lambda domain: Ending(200))

    of_others = simulation.requests - len(simulation.asked_s.get("hot.test", []))
    # With and without it within 2 % of each other, as both are of the same cap.
    assert of_others >= 0.98 * 2000 * 10
    for asked_s in simulation.asked_s.values():
        assert min(gaps(asked_s)) > 0.999


async def test_a_domain_is_asked_when_it_is_due_and_not_only_in_the_turn_after(
    simulate: Callable[..., Simulation],
) -> None:
    # Chains of one: every URL comes from Redis.
    simulation = simulate(CRAWL_CHAIN=1)
    await simulation.fill({f"d{number}.test": 12 for number in range(50)})
    await simulation.open()

    await simulation.pass_time(5.0, lambda domain: Ending(200), turn_s=0.03, looks=6)

    # A look later than due at most; a delay is not a multiple of a turn.
    assert all(0.999 < gap < 1.006 for asked_s in simulation.asked_s.values() for gap in gaps(asked_s))


async def test_domains_that_wait_after_their_robots_txt_do_not_keep_others_from_being_asked(
    simulate: Callable[..., Simulation],
) -> None:
    simulation = simulate(is_asking_robots=True)
    # Many more than leases have room in memory.
    domains = {f"d{number}.test": 4 for number in range(2000)}
    await simulation.fill(domains)
    await simulation.open()

    await simulation.pass_time(1.0, lambda domain: Ending(200))
    assert simulation.asked_s.keys() == domains.keys()
    await simulation.pass_time(2.0, lambda domain: Ending(200))

    assert simulation.requests >= 0.95 * 2000 * 3
    for asked_s in simulation.asked_s.values():
        assert min(gaps(asked_s)) > 0.999


@pytest.mark.parametrize("is_asking_robots", [True, False], ids=["robots.txt", "pages"])
async def test_a_dead_domain_is_asked_less_than_ten_times_an_hour_and_keeps_its_urls(
    simulate: Callable[..., Simulation], is_asking_robots: bool
) -> None:
    simulation = simulate(is_asking_robots=is_asking_robots)
    await simulation.fill({"dead.test": 100})
    await simulation.open()

    await simulation.pass_time(3600.0, lambda domain: Ending(error="connection_refused"), turn_s=1.0)

    assert 2 <= simulation.requests < 10
    assert (await simulation.run.read_counters()).counts["parked"] == 100


@pytest.mark.parametrize(
    "ended", [Ending(error="connection_refused"), Ending(429)], ids=["dead", "throttled"]
)
async def test_a_domain_in_trouble_comes_back_by_itself(
    simulate: Callable[..., Simulation], ended: Ending
) -> None:
    simulation = simulate(is_asking_robots=True)
    await simulation.fill({"a.test": 12})
    await simulation.open()
    await simulation.pass_time(1800.0, lambda domain: ended, turn_s=2.0)
    assert (await simulation.run.read_counters()).counts["parked"] == 12
    before = simulation.requests

    simulation.now_s += simulation.config.parked_seconds
    await simulation.pass_time(1800.0, lambda domain: Ending(200), turn_s=1.0)

    assert before < 10
    # Its robots.txt first.
    assert simulation.requests == before + 1 + 12
    counters = await simulation.run.read_counters()
    assert (counters.counts["done"], counters.counts["parked"], counters.waiting) == (12, 0, 0)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_domain_that_throttles_everything_is_asked_ten_times_less_within_ten_requests(
    simulate: Callable[..., Simulation], status: int
) -> None:
    simulation = simulate()
    await simulation.fill({"busy.test": 100})
    await simulation.open()
    await simulation.pass_time(5.0, lambda domain: Ending(200))
    well_s = gaps(simulation.asked_s["busy.test"])
    simulation.asked_s.clear()

    await simulation.pass_time(3600.0, lambda domain: Ending(status), turn_s=0.5)

    throttled_s = gaps(simulation.asked_s["busy.test"][:10])
    assert max(well_s) < 1.1
    assert throttled_s == sorted(throttled_s)
    assert throttled_s[-1] >= 10 * max(well_s)
    assert sum(throttled_s) / len(throttled_s) >= 10 * max(well_s)


def gaps(times_s: list[float]) -> list[float]:
    return [later - one for one, later in pairwise(times_s)]
