"""Registrations that wait share one batch: ids stay unique, and each client gets its own answer."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.registry.changes import delete_subject
from ottla.registry.errors import RegistryError
from ottla.registry.log import SchemasLog
from ottla.registry.registry import Proposal, Registry
from ottla.registry.state import State
from ottla.registry.topic import Fenced


class Topic:
    """The partition of several registries: batches in memory. A batch waits while the topic is held."""

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self.batches = []
        self.max_bytes = max_bytes
        self.open = threading.Event()
        self.open.set()
        self.waits = threading.Event()
        self.takes_over = None

    def fence(self, may_continue) -> None:
        pass

    def produce(self, pairs, may_continue) -> int:
        self.waits.set()
        self.open.wait()
        if self.takes_over is not None:
            others, self.takes_over = self.takes_over, None
            others()
            raise Fenced("another epoch")
        if sum(len(key) + len(value or b"") for key, value in pairs) > self.max_bytes:
            raise ApiException(ErrorCode.MESSAGE_TOO_LARGE, "the batch is too large")
        base = sum(map(len, self.batches))
        self.batches.append(list(pairs))
        return base

    def subjects(self):
        """The subjects of the schemas in each batch; the NOOPs of leaders are left out."""
        batches = [[json.loads(key).get("subject") for key, _ in batch] for batch in self.batches]
        return [names for names in batches if names != [None]]


def text(name: str, **more: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [], **more})


class Scene:
    """A registry on a topic whose first batch is held until the clients that follow all wait."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.state = State()
        self.log = SchemasLog(lambda: pytest.fail("no cluster"), "_schemas", 1, self.state, "fence")
        self.log._partition = topic
        self.registry = Registry(self.state, self.log, lambda: True)

    async def together(self, *work):
        """The outcomes of coroutines that all begin while a batch is on its way."""
        self.topic.open.clear()
        self.topic.waits.clear()
        first = asyncio.ensure_future(self.register("first", text("First")))
        await asyncio.to_thread(self.topic.waits.wait)
        tasks = [asyncio.ensure_future(one) for one in work]
        # The first step of each puts its change into the queue, or a large schema into the thread that parses it.
        while len(self.log._changes._waiting) < len(tasks):  # noqa: ASYNC110 - each turn is a step of the others
            await asyncio.sleep(0)
        self.topic.open.set()
        await first
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def register(self, subject: str, schema: str) -> int:
        return (await self.registry.register(subject, Proposal(schema), normalize=False)).id


def run(topic: Topic, *work):
    async def scene():
        one = Scene(topic)
        try:
            await one.registry.take_over()
            return one, await one.together(*(each(one) for each in work))
        finally:
            await one.log.stop()
            one.registry.workbench.close()

    return asyncio.run(scene())


def registers(subject: str, schema: str):
    return lambda scene: scene.register(subject, schema)


def test_registrations_that_wait_share_a_batch_and_have_ids_of_their_own():
    topic = Topic()
    scene, ids = run(topic, *(registers(f"s{n}", text(f"S{n}")) for n in range(20)))
    assert ids == list(range(2, 22))
    assert topic.subjects() == [["first"], [f"s{n}" for n in range(20)]]
    assert scene.state.contexts["."].max_id == 21


def test_the_same_schema_under_two_subjects_of_a_batch_has_one_id():
    _, ids = run(
        Topic(), registers("a", text("Same")), registers("b", text("Same")), registers("c", text("C"))
    )
    assert ids == [2, 2, 3]


def test_ids_of_each_context_count_for_themselves():
    _, ids = run(
        Topic(), registers(":.x:a", text("A")), registers("b", text("B")), registers(":.x:c", text("C"))
    )
    assert ids == [1, 2, 2]


def test_a_second_version_of_a_subject_is_decided_after_the_first_is_written():
    topic = Topic()
    scene, ids = run(
        topic, registers("a", text("A")), registers("b", text("B")), registers("a", text("A", doc="2"))
    )
    assert ids == [2, 3, 4]
    assert topic.subjects() == [["first"], ["a", "b"], ["a"]]
    assert [one.version for one in scene.state.versions("a")] == [1, 2]


def test_a_deletion_has_a_batch_of_its_own_and_keeps_its_place():
    topic = Topic()
    scene, outcomes = run(
        topic,
        registers("a", text("A")),
        lambda scene: delete_subject(scene.registry, "first", permanent=False),
        registers("b", text("B")),
    )
    assert outcomes == [2, [1], 3]
    assert topic.subjects() == [["first"], ["a"], ["first"], ["b"]]
    assert scene.state.versions("first") == []


def test_a_deletion_for_good_ends_every_spelling_of_a_key():
    """confluentinc/schema-registry#4420: after compaction, a key in an old order of fields brought its schema back."""
    legacy = b'{"magic":0,"subject":"old","version":1,"keytype":"SCHEMA"}'
    value = b'{"subject":"old","version":1,"id":7,"schema":"\\"string\\"","deleted":false}'
    topic = Topic()
    topic.batches.append([(legacy, value)])

    async def scene() -> None:
        one = Scene(topic)
        one.state.apply(0, legacy, value)
        try:
            await one.registry.take_over()
            for permanent in (False, True):
                assert await delete_subject(one.registry, "old", permanent=permanent) == [1]
        finally:
            await one.log.stop()
            one.registry.workbench.close()

    asyncio.run(scene())
    compacted = {key: value for batch in topic.batches for key, value in batch}
    again = State()
    for offset, (key, left) in enumerate(pair for pair in compacted.items() if pair[1] is not None):
        again.apply(offset, key, left)
    assert again.subjects == {} and legacy in compacted


def test_a_registration_that_is_refused_leaves_the_others_alone():
    topic = Topic()
    wrong = json.dumps({"type": "record", "name": "First", "fields": [{"name": "id", "type": "int"}]})
    _, outcomes = run(topic, registers("a", text("A")), registers("first", wrong), registers("b", text("B")))
    assert isinstance(outcomes[1], RegistryError) and outcomes[1].status == 409
    assert [outcomes[0], outcomes[2]] == [2, 3]
    assert topic.subjects() == [["first"], ["a", "b"]]


def test_a_group_that_another_leader_fences_is_decided_again_as_a_whole():
    topic = Topic()

    def other_leader(scene) -> None:
        # The other one took the id 2, and this registry has read it.
        value = {"subject": "other", "version": 1, "id": 2, "schema": text("Other"), "deleted": False}
        key = {"keytype": "SCHEMA", "subject": "other", "version": 1, "magic": 1}
        pair = (json.dumps(key).encode(), json.dumps(value).encode())
        topic.batches.append([pair])
        scene.log._loop.call_soon_threadsafe(scene.state.apply, scene.state.next_offset, *pair)

    async def scene():
        one = Scene(topic)
        one.log._loop = asyncio.get_running_loop()
        await one.registry.take_over()
        await one.register("first", text("First"))
        topic.takes_over = lambda: other_leader(one)
        found = await asyncio.gather(*(one.register(name, text(name)) for name in ("a", "b", "c")))
        await one.log.stop()
        one.registry.workbench.close()
        return found

    assert asyncio.run(scene()) == [3, 4, 5]


def test_a_group_that_is_too_large_for_the_topic_is_written_one_by_one():
    topic = Topic(max_bytes=3_000)
    _, outcomes = run(
        topic,
        registers("a", text("A", doc="x" * 2_000)),
        registers("b", text("B", doc="x" * 5_000)),
        registers("c", text("C", doc="x" * 2_000)),
    )
    assert isinstance(outcomes[1], RegistryError) and outcomes[1].code == 50001
    assert [outcomes[0], outcomes[2]] == [2, 3]
    assert topic.subjects() == [["first"], ["a"], ["c"]]


def test_a_batch_takes_schemas_up_to_its_limit_and_the_next_one_the_rest():
    topic = Topic()
    _, ids = run(topic, *(registers(f"s{n}", text(f"S{n}", doc="x" * 100_000)) for n in range(5)))
    assert ids == [2, 3, 4, 5, 6]
    assert topic.subjects() == [["first"], ["s0", "s1"], ["s2", "s3"], ["s4"]]
