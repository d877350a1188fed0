"""The client on a Redis Cluster: every command finds its slot, also while slots move and masters die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from crawlproj.errors import RedisRefused, SetBack
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.answers import ScriptError
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.scripts import Scripts
from crawlproj.runs import Run
from tests.cluster.conftest import MakeCluster
from tests.cluster.servers import ClusterOfServers, Node, until
from tests.patience import PATIENCE_S
from tests.ports import HeldPorts

RUN = "web"
PARTITIONS = 64
OpenClient = Callable[..., Awaitable[RedisClient]]


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterOfServers:
    return make_cluster(password="secret")


@pytest.fixture
async def client(cluster: ClusterOfServers, open_client: OpenClient) -> RedisClient:
    opened = await open_client(cluster.url)
    await opened.to_all("FLUSHALL")
    return opened


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, RUN, partitions=PARTITIONS)


def frontier_of(run: Run) -> Frontier:
    return Frontier(run.client, run.name, run.partitions)


def sites(first: int, last: int) -> list[Candidate]:
    return [Candidate(f"http://d{number}.test/") for number in range(first, last)]


async def test_keys_and_work_spread_evenly_over_the_masters(cluster: ClusterOfServers, run: Run) -> None:
    before = [node.info("total_commands_processed") for node in cluster.masters]

    admitted = await frontier_of(run).admit(sites(0, 1000))

    held = [node.ask().dbsize() for node in cluster.masters]
    done = [node.info("total_commands_processed") for node in cluster.masters]
    worked = [after - count for after, count in zip(done, before, strict=True)]
    assert admitted.new == 1000
    assert max(held) / (sum(held) / 3) < 1.3, held
    assert max(worked) / (sum(worked) / 3) < 1.3, worked
    assert (await run.read_counters()).waiting == 1000


@pytest.mark.parametrize("name", ["web", "a", "exp-01", "x" * 64])
@pytest.mark.parametrize("masters", [2, 3, 4, 5, 8, 16])
def test_stripes_spread_evenly_over_any_number_of_masters(name: str, masters: int) -> None:
    slots = [keys.slot_of(keys.pages(name, stripe)) for stripe in range(keys.STRIPES)]
    held = [slot * masters // keys.SLOTS for slot in slots]

    most, least = (pick(held.count(master) for master in range(masters)) for pick in (max, min))
    assert most - least <= 1
    for partition in range(PARTITIONS):
        stripe = keys.stripe_of(partition)
        assert (
            keys.slot_of(keys.meta(name, partition))
            == slots[stripe]
            == keys.slot_of(keys.page_counters(name, stripe))
        )


async def test_a_step_on_two_slots_is_refused(client: RedisClient) -> None:
    names = [keys.promises(RUN), keys.page_counters(RUN, 3)]

    with pytest.raises(ScriptError, match="slot"):
        await client.command("EVAL", "return 1", 2, *names)


async def test_pages_of_all_stripes_are_taken_committed_and_counted(run: Run) -> None:
    client, queue = run.client, PageQueue(run.client, RUN)
    for stripe in client.stripes:
        await client.command("RPUSH", keys.pages(RUN, stripe), *(f"{stripe} {n}" for n in range(3)))
    await queue.heartbeat("p", 0)

    taken = await queue.take("p", 32, wait_s=1)
    for number, stripe in enumerate(client.stripes):
        await queue.commit("p", f"p-{number:06d}", 2, {"stored": 2}, stripe=stripe)
    left = await queue.length()
    returned = await queue.leave("p")

    assert sorted({stripe for stripe, _ in taken}) == list(range(16))
    assert (len(taken), left, returned) == (32, 16, 0)
    assert len(await queue.segments()) == 16
    assert (await run.read_counters()).stored == 32


async def test_every_key_of_a_deleted_run_is_gone_from_every_master(
    cluster: ClusterOfServers, run: Run
) -> None:
    await frontier_of(run).admit(sites(0, 100))
    await PageQueue(run.client, RUN).heartbeat("p", 0)

    await run.delete()

    assert [node.ask().dbsize() for node in cluster.masters] == [0, 0, 0]


async def test_a_transaction_is_one_on_its_node(client: RedisClient) -> None:
    key = keys.run_record(RUN)

    answers = await client.pipeline([("HSET", key, "a", 1), ("HGET", key, "a")], transaction=True)

    assert answers == [1, b"1"]


async def test_messages_reach_subscribers_of_every_node(client: RedisClient) -> None:
    heard = []
    async with client.subscribe("c") as first, client.subscribe("c") as second:
        for subscription in (first, second):
            assert await anext(subscription) is None
        await client.command("PUBLISH", "c", "now")
        async with asyncio.timeout(PATIENCE_S):
            heard = [await anext(subscription) for subscription in (first, second)]

    assert heard == [(b"c", b"now")] * 2


async def test_a_slot_that_moves_is_followed_and_nothing_is_lost(cluster: ClusterOfServers, run: Run) -> None:
    run.watch()
    frontier = frontier_of(run)
    await frontier.admit(sites(0, 300))
    slot = keys.slot_of(keys.pages(RUN, 0))
    source = cluster.owner(slot)
    target = next(node for node in cluster.masters if node is not source)

    moving = asyncio.create_task(asyncio.to_thread(cluster.move, slot, source, target))
    for first in range(300, 1300, 50):
        await frontier.admit(sites(first, first + 50))
    await moving
    again = await frontier.admit(sites(0, 1300))
    await asyncio.to_thread(cluster.move, slot, target, source)

    assert (again.new, again.seen) == (0, 1300)
    assert (await run.read_counters()).waiting == 1300
    # A move loses nothing, and is not taken for a set-back.
    assert run.client.generation == 0


@pytest.mark.parametrize("moved", [0, 1], ids=["its key has moved", "what it finds by itself has moved"])
async def test_a_step_is_not_carried_out_by_halves_while_its_slot_moves(
    cluster: ClusterOfServers, client: RedisClient, open_client: OpenClient, tmp_path: Path, moved: int
) -> None:
    (tmp_path / "count_both.lua").write_text(
        "-- count_both: count a key, and one beside it.\n-- KEYS[1] first  string  a number\n"
        "return {redis.call('INCR', KEYS[1]), redis.call('INCR', KEYS[1] .. ':more')}\n"
    )
    striped = await open_client(cluster.url, scripts=Scripts(tmp_path))
    names = [keys.pages(RUN, 3), f"{keys.pages(RUN, 3)}:more"]
    slot = keys.slot_of(names[0])
    assert await striped.run("count_both", [names[0]], []) == [1, 1]
    source = cluster.owner(slot)
    target = next(node for node in cluster.masters if node is not source)
    cluster.begin_to_move(slot, source, target, names[moved])

    step = asyncio.create_task(striped.run("count_both", [names[0]], []))
    while not (striped.retry.is_waiting or step.done()):  # noqa: ASYNC110  # nobody notifies us
        await asyncio.sleep(0.01)
    cluster.move(slot, source, target)
    answer = await step
    cluster.move(slot, target, source)

    assert answer == [2, 2]


async def test_where_a_slot_has_moved_is_asked_only_once(
    cluster: ClusterOfServers, client: RedisClient
) -> None:
    key = keys.page_counters(RUN, 3)
    slot = keys.slot_of(key)
    source = cluster.owner(slot)
    target = next(node for node in cluster.masters if node is not source)
    await client.command("HINCRBY", key, "stored", 1)
    before = moved_answers(source)

    cluster.move(slot, source, target)
    for _ in range(5):
        await client.command("HINCRBY", key, "stored", 1)
    after = moved_answers(source)
    cluster.move(slot, target, source)

    assert after - before == 1


def moved_answers(node: Node) -> int:
    counts = node.ask().info("errorstats")
    return int(counts.get("errorstat_MOVED", {"count": 0})["count"])


async def test_a_wrong_password_is_refused_at_once(cluster: ClusterOfServers, tmp_path: Path) -> None:
    with pytest.raises(RedisRefused, match="refused access"):
        await RedisClient.open(url=cluster.url.replace("secret", "other"), data_dir=tmp_path)


async def test_a_node_named_as_a_single_server_says_how_to_write_it(
    cluster: ClusterOfServers, tmp_path: Path
) -> None:
    url = f"redis://:secret@127.0.0.1:{cluster.masters[0].port}"

    with pytest.raises(RedisRefused, match=r"REDIS_URL=redis\+cluster://"):
        await RedisClient.open(url=url, data_dir=tmp_path)


async def test_a_single_server_named_as_a_cluster_says_how_to_write_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with HeldPorts() as ports:
        server = Node(tmp_path_factory.mktemp("single"), ports.hold(), (), tls=False, password="").start()
        try:
            with pytest.raises(RedisRefused, match=r"is not a Redis Cluster\. Write redis:// in REDIS_URL"):
                await RedisClient.open(url=f"redis+cluster://127.0.0.1:{server.port}", data_dir=tmp_path)
        finally:
            server.kill()


async def test_what_a_killed_master_had_not_passed_on_is_noticed_and_admitted_again(
    make_cluster: MakeCluster, open_client: OpenClient
) -> None:
    cluster = make_cluster()
    run = await Run.open(await open_client(cluster.url), RUN, partitions=PARTITIONS)
    run.watch()
    frontier = frontier_of(run)
    await frontier.admit(sites(0, 200))
    frontier.generation = run.client.generation
    slot = keys.slot_of(keys.pages(RUN, 5))
    master = cluster.owner(slot)
    replica = cluster.replicas[cluster.masters.index(master)]
    # The replica cannot come back, so what is written now is on the master alone.
    replica.ask().config_set("masterauth", "wrong")
    master.ask().execute_command("CLIENT KILL TYPE replica")
    until(lambda: master.info("connected_slaves") == 0, "the replica is cut off")
    assert (await frontier.admit(sites(200, 600))).new == 400

    cluster.fail_over(master)
    with pytest.raises(SetBack):
        await frontier.admit(sites(600, 700))
    frontier.generation = run.client.generation
    lost = await frontier.readmit()

    assert run.client.generation == 1
    assert 50 < lost < 250, lost
    assert (await frontier.readmit(), (await frontier.admit(sites(0, 600))).new) == (0, 0)


async def test_what_was_lost_between_two_terms_of_a_master_is_noticed_on_old_connections_too(
    make_cluster: MakeCluster, open_client: OpenClient
) -> None:
    cluster = make_cluster()
    client = await open_client(cluster.url)
    run = await Run.open(client, RUN, partitions=PARTITIONS)
    run.watch()
    key, slot = keys.page_counters(RUN, 5), keys.slot_of(keys.pages(RUN, 5))
    first = cluster.owner(slot)
    second = cluster.replicas[cluster.masters.index(first)]
    for _ in range(3):
        await client.command("HINCRBY", key, "stored", 1)

    promote(second, first)
    await client.command("HINCRBY", key, "stored", 1)
    # What a replica that is behind would lack.
    second.ask().delete(keys.witness(RUN, 5))
    assert client.generation == 0
    promote(first, second)
    await client.command("HINCRBY", key, "stored", 1)

    assert client.generation == 1


def promote(replica: Node, master: Node) -> None:
    """Change roles while both are alive: connections to both stay open."""
    until(lambda: replica.ask().info("replication")["master_link_status"] == "up", "the replica is up")
    replica.ask().execute_command("CLUSTER FAILOVER", "TAKEOVER")
    until(lambda: (replica.info("role"), master.info("role")) == ("master", "slave"), "roles changed")
