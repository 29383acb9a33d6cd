"""A leader that was paused while another took over: the brokers refuse its record, and it decides again."""

from __future__ import annotations

import asyncio
import json

import pytest

from integration.registry_client import topic_records
from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.registry.errors import RegistryError
from ottla.registry.log import SchemasLog
from ottla.registry.registry import Proposal, Registry
from ottla.registry.state import State


class Instance:
    """A registry without its HTTP server and its elector: the test says who leads."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        settings = ClusterSettings(bootstrap=((host, int(port)),))
        state = State()
        self.leads = True
        self.log = SchemasLog(lambda: Cluster(settings), topic, 1, state, f"registry-{topic}")
        self.registry = Registry(state, self.log, lambda: self.leads)

    async def __aenter__(self) -> Instance:
        await self.log.start()
        await self.log.ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.log.stop()
        self.registry.workbench.close()

    async def register(self, name: str) -> int:
        text = json.dumps({"type": "record", "name": name, "fields": []})
        return (await self.registry.register(name, Proposal(text), normalize=False)).id

    def pause_before_sending(self, meanwhile) -> None:
        """Before the next record leaves this instance, when all its checks are done, something happens elsewhere."""
        partition = self.log._partition
        send = partition._produce

        def late(batch):
            partition._produce = send
            meanwhile()
            return send(batch)

        partition._produce = late


def ids(bootstrap, topic):
    """The names of the schemas by id, as any reader of the topic sees them; no id has two."""
    found: dict[int, str] = {}
    for key, value in topic_records(bootstrap, topic):
        if b'"SCHEMA"' in key:
            fields = json.loads(value)
            assert found.setdefault(fields["id"], fields["subject"]) == fields["subject"]
    return found


async def take_turns(bootstrap, topic, still_leads):
    loop = asyncio.get_running_loop()
    async with Instance(bootstrap, topic) as first, Instance(bootstrap, topic) as second:
        await first.registry.take_over()
        assert await first.register("A") == 1

        async def other() -> None:
            await second.registry.take_over()
            assert await second.register("B") == 2
            first.leads = still_leads

        first.pause_before_sending(lambda: asyncio.run_coroutine_threadsafe(other(), loop).result(30))
        return await first.register("C")


def test_a_paused_leader_that_still_leads_decides_again(shared_ottla_broker):
    bootstrap = shared_ottla_broker.bootstrap
    assert asyncio.run(take_turns(bootstrap, "_fenced", still_leads=True)) == 3
    assert ids(bootstrap, "_fenced") == {1: "A", 2: "B", 3: "C"}


def test_a_paused_leader_that_leads_no_more_writes_nothing(shared_ottla_broker):
    bootstrap = shared_ottla_broker.bootstrap
    with pytest.raises(RegistryError, match="not the leader any more") as failed:
        asyncio.run(take_turns(bootstrap, "_deposed", still_leads=False))
    assert failed.value.code == 50001
    assert ids(bootstrap, "_deposed") == {1: "A", 2: "B"}


def test_records_stay_plain_for_other_readers(shared_ottla_broker):
    """No transactions and no markers: every offset is a record, as Confluent's registry leaves the topic."""
    bootstrap = shared_ottla_broker.bootstrap

    async def write() -> None:
        async with Instance(bootstrap, "_plain") as one:
            for _ in range(2):
                await one.registry.take_over()
            await one.register("A")

    asyncio.run(write())
    noop = (b'{"keytype":"NOOP","magic":0}', None)
    pairs = topic_records(bootstrap, "_plain")
    assert pairs[:2] == [noop, noop] and len(pairs) == 3
