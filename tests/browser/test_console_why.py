"""Why a group lags: every rule is provoked for real, and a person reads the sentence on the group's page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

VERDICT_MS = 90_000
"""Some rules look at half a minute of samples before they say anything."""
RARELY_S = 48
"""Samples are up to 17 seconds apart, so two commits may seem that much closer than they are."""
TOPICS = {
    "empty": (1, {}),
    "rebalancing": (2, {}),
    "stalled": (1, {}),
    "waiting": (1, {}),
    "hot": (3, {}),
    "skewed": (5, {}),
    "skewed-too": (1, {}),
    "idle": (1, {}),
    "slow": (1, {}),
    "catching-up": (1, {}),
    "near-loss": (1, {"retention.ms": "7200000"}),
    "lost": (1, {}),
    "rewound": (1, {}),
    "rare": (1, {}),
    "markers": (1, {}),
}
SENTENCES = {
    "empty": "Nobody reads: the group has been empty",
    "waiting": "Readers of committed records wait for producer",
    "near-loss": "In 1 h 59 min retention begins to delete unread records.",
    "lost": "5 records were deleted before they were read.",
    "rewound": "It went back by 40 records",
    "idle": "1 of 2 members has nothing to read; there is 1 partition.",
    "markers": "It has read every record: 1 offset is left, of which 1 is a marker of a transaction.",
    "hot": "of what comes into hot goes to partition 2; the commonest key in its last",
    "skewed": "app-1 has 5 of 6 partitions",
    "stalled": "Partition stalled-0 stands at 1 for",
    "slow": "more members of this speed are needed",
    "catching-up": "It will be level in about",
    "rebalancing": "It rebalances every",
    "rare": "the saw teeth of its lag are the time between commits",
}
"""By group, the slow ones last. A partition without a leader needs a lost broker: the tests of the cluster have it."""


class World:
    """Groups with members that stay, and what is written and committed while a person looks."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._members: list[Consumer] = []
        self._outsiders: list[Consumer] = []
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []
        # Members take part in a rebalance while they are polled.
        self.again(0.1, lambda: [each.poll(0) for each in self._members])

    def write(self, topic: str, count: int, partition: int = 0, key: str | None = None) -> None:
        for number in range(count):
            self._producer.produce(topic, str(number), key, partition=partition)
        assert self._producer.flush(30) == 0

    def member(self, group: str, *topics: str, name: str = "") -> Consumer:
        """A member that has its partitions, and stays."""
        consumer = self._joined(group, topics, name or group)
        self._members.append(consumer)
        return consumer

    def pass_by(self, group: str) -> None:
        """Join a group and leave it again."""
        self._joined(group, (group,), "passes by").close()

    def _joined(self, group: str, topics: Sequence[str], name: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "client.id": name,
                "group.protocol": "consumer" if group == "rebalancing" else "classic",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        joined = threading.Event()
        consumer.subscribe(list(topics), on_assign=lambda *_: joined.set())
        while not joined.is_set():
            consumer.poll(0.1)
        return consumer

    def outsider(self, group: str) -> Consumer:
        """Commits for a group without members."""
        self._outsiders.append(Consumer({"bootstrap.servers": self._bootstrap, "group.id": group}))
        return self._outsiders[-1]

    def again(self, each_s: float, step: Callable[[], object]) -> None:
        """Take a step again and again, until the story ends."""

        def run() -> None:
            try:
                while not self._ending.wait(each_s):
                    step()
            except BaseException as error:  # noqa: BLE001 - the test shows it
                self.failures.append(error)

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
        for member in (*self._members, *self._outsiders):
            member.close()


class Steps:
    """Each step writes so many records to each partition, and commits so many more of the last one."""

    def __init__(
        self,
        topic: str,
        member: Consumer,
        world: World,
        written: dict[int, int],
        read: int,
        key: str | None = None,
    ) -> None:
        self._topic, self._member, self._world = topic, member, world
        self._written, self._read, self._key = written, read, key
        self._committed = 0

    def __call__(self) -> None:
        for partition, count in self._written.items():
            self._world.write(self._topic, count, partition, self._key)
        self._committed += self._read
        commit(self._member, self._topic, self._committed, max(self._written))


def commit(consumer: Consumer, topic: str, offset: int, partition: int = 0) -> None:
    consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)


@pytest.fixture(scope="module")
def broker_settings():
    # A group's first members get their partitions at once.
    return {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def world(broker):
    found = World(broker.bootstrap)
    yield found
    found.end()
    assert found.failures == []


def begin_the_slowest(broker, world, groups):
    """Two rules look back over most of a minute: their groups act while the others are still made."""
    rare = world.member("rare", "rare")
    commit(rare, "rare", 0)
    commit(world.member("rebalancing", "rebalancing", name="stays"), "rebalancing", 0)
    expect(groups.locator("tbody")).to_contain_text("rare")
    expect(groups.locator("tbody")).to_contain_text("rebalancing")
    step = Steps("rare", rare, world, written={0: 1}, read=1)
    step()
    world.again(RARELY_S, step)
    world.again(2, lambda: world.pass_by("rebalancing"))


def make_groups(broker, world, admin):
    """Groups that need nothing more to be done: they lag, and stay as they are."""
    for name in ("empty", "stalled", "near-loss", "lost", "idle"):
        world.write(name, 50)
    for partition in range(5):
        world.write("skewed", 60, partition)
    commit(world.outsider("empty"), "empty", 10)
    commit(world.outsider("near-loss"), "near-loss", 10)
    commit(world.outsider("lost"), "lost", 0)
    for done in admin.delete_records([TopicPartition("lost", 0, 5)]).values():
        done.result()
    commit(world.outsider("waiting"), "waiting", 0)
    commit(world.member("markers", "markers"), "markers", 1)
    commit(world.member("idle", "idle"), "idle", 50)
    world.member("idle", "idle", name="spare")
    commit(world.member("stalled", "stalled"), "stalled", 1)
    skewed = world.member("skewed", "skewed", name="app-1")
    world.member("skewed", "skewed-too", name="app-2")
    for partition in range(5):
        commit(skewed, "skewed", 1, partition)


def test_each_reason_for_a_lag_is_named(broker, world, start_console, open_page):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, count, 1, config=settings) for name, (count, settings) in TOPICS.items()]
    for made in admin.create_topics(topics).values():
        made.result()
    console = start_console("--bootstrap-server", broker.bootstrap)
    groups = open_page(f"{console.url}/groups")
    begin_the_slowest(broker, world, groups)

    world.write("rewound", 50)
    world.write("catching-up", 30_000)
    transaction = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing"})
    transaction.init_transactions()
    transaction.begin_transaction()
    transaction.produce("markers", "followed by a marker", partition=0)
    transaction.commit_transaction()
    transaction.begin_transaction()
    transaction.produce("waiting", "held back", partition=0)
    transaction.flush()
    rewound = world.outsider("rewound")
    commit(rewound, "rewound", 50)
    hot, slow, catching_up = (world.member(name, name) for name in ("hot", "slow", "catching-up"))
    for partition in range(3):
        commit(hot, "hot", 0, partition)
    commit(slow, "slow", 0)
    commit(catching_up, "catching-up", 0)
    world.again(1, Steps("hot", hot, world, written={0: 2, 1: 2, 2: 40}, read=5, key="unknown"))
    world.again(1, Steps("slow", slow, world, written={0: 200}, read=10))
    world.again(1, Steps("catching-up", catching_up, world, written={0: 1}, read=200))
    make_groups(broker, world, admin)
    expect(groups.locator("tbody tr")).to_have_count(len(SENTENCES), timeout=VERDICT_MS)
    commit(rewound, "rewound", 10)

    page = open_page(console.url)
    for group, sentence in SENTENCES.items():
        page.goto(f"{console.url}/group?id={group}")
        expect(page.locator(".findings")).to_contain_text(sentence, timeout=VERDICT_MS)
        if group == "hot":
            expect(page.locator(".findings")).to_contain_text('records is "unknown" (')
