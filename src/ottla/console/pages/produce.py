"""Write a record, and send a record again. Both are plans: what is shown is what is written."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import raise_for
from ottla.client.partitioners import murmur2
from ottla.console.pages.topic_changes import parse_settings
from ottla.console.plans import Form, Plan, change
from ottla.console.reader import records as reading
from ottla.console.reader.decode import show
from ottla.console.render import visible
from ottla.console.security.roles import PRODUCE, READ
from ottla.console.web import BadInput, Values, View, page, whole
from ottla.ids import TopicName
from ottla.records.batch import build_batch
from ottla.records.record import Header, Record
from ottla.wire.messages import ProduceRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_BY_NAME: Final = 12
"""The last version of Produce that names topics."""
_TIMEOUT_MS: Final = 10_000
MAX_VALUE: Final = 1 << 20


def produce(cluster: Cluster, topic: str, partition: int, records: Sequence[Record]) -> int:
    """Write records as one batch, acknowledged by all in-sync replicas; the first offset."""
    kind = ProduceRequest
    batch = build_batch([Record(index, *_rest(each)) for index, each in enumerate(records)])
    data = kind.TopicProduceData(
        name=TopicName(topic), partition_data=[kind.PartitionProduceData(index=partition, records=batch)]
    )
    request = kind(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])

    def ask() -> int:
        cluster.forget_locations()
        answer = cluster.ask_on(cluster.leader(topic, partition), request, _BY_NAME)
        (part,) = answer.responses[0].partition_responses
        raise_for(part.error_code, part.error_message, f"{topic}-{partition}")
        return part.base_offset

    return ask()


def _rest(record: Record) -> tuple[int, bytes | None, bytes | None, Sequence[Header]]:
    return record.timestamp, record.key, record.value, record.headers


def partition_for(key: bytes | None, count: int) -> int:
    """Where Kafka's clients put a key; anywhere without one."""
    return random.randrange(count) if key is None else (murmur2(key) & 0x7FFFFFFF) % count


@page("/t/{topic}/produce", "produce.html", verb=PRODUCE, resource="topic:{topic}", menu="topics")
async def produce_page(view: View) -> Values:
    """The form of a record."""
    topic = view.topic()
    crumbs = [("Topics", view.url("topics")), (topic.name, view.url("t", topic.name))]
    return {"topic": topic, "crumbs": crumbs}


@change("record.produce", PRODUCE)
async def plan_produce(view: View, form: Form) -> Plan:
    """Write one record."""
    name = form.get("topic", "")
    topic = view.state.topics.get(name)
    if topic is None:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    if len(form.get("value", "").encode()) > MAX_VALUE:
        raise BadInput(f"The value has more than {MAX_VALUE:,} bytes: write it with a producer.")
    key = form.get("key", "").encode() if form.get("with_key") else None
    value = None if form.get("tombstone") else form.get("value", "").replace("\r\n", "\n").encode()
    headers = [(each, text.encode()) for each, text in parse_settings(form.get("headers", "")).items()]
    chosen = form.get("partition", "").strip()
    partition = whole(chosen, "Partition", 0, topic.partitions - 1) if chosen else None
    record = Record(0, int(time.time() * 1000), key, value, headers)

    async def apply() -> str:
        number = partition_for(key, topic.partitions) if partition is None else partition
        offset = await view.cluster.call(produce, name, number, [record])
        return f"The record is at offset {offset:,} of partition {number}."

    where = (
        "by its key" if partition is None and key is not None else "any" if partition is None else partition
    )
    return Plan(
        title=f"Write to {name}",
        verb=PRODUCE,
        resource=f"topic:{name}",
        apply=apply,
        columns=("What", ""),
        rows=[
            ("partition", where),
            ("key", "null" if key is None else visible(key.decode())),
            ("value", "null" if value is None else visible(show(value).line)),
            *((f"header {each}", data.decode()) for each, data in headers),
        ],
        commands=[f"ottla produce --bootstrap-server {view.cluster.bootstrap} --topic {name}"],
        button="Write the record",
        then=view.url("t", name),
    )


@change("record.resend", PRODUCE)
async def plan_resend(view: View, form: Form) -> Plan:
    """Write a record of the log again, byte for byte, with a new timestamp."""
    name = form.get("topic", "")
    partition, offset = whole(form.get("partition", ""), "Partition"), whole(form.get("offset", ""), "Offset")
    view.require(READ, f"topic:{name}")
    target = form.get("to", "") or name
    if target not in view.state.topics:
        raise BadInput(f"There is no topic '{target[:80]}'.")
    _, seen = await reading.read_at(view.cluster.reader, name, partition, offset)
    found = next((each for each in seen if each.offset == offset and not each.control), None)
    if found is None:
        raise BadInput(f"There is no record at {name} {partition}:{offset:,}.")
    if view.console.masks.for_reader(name, view.principal):
        raise BadInput("Records of this topic are masked for you: they cannot be sent again.")
    key, value = found.stored or (found.key, found.value)
    record = Record(0, int(time.time() * 1000), key, value, found.headers)
    count = view.state.topics[target].partitions
    number = partition if target == name else partition_for(key, count)

    async def apply() -> str:
        written = await view.cluster.call(produce, target, number, [record])
        return f"The record is at offset {written:,} of partition {number} of {target}."

    return Plan(
        title=f"Send {name} {partition}:{offset} again",
        verb=PRODUCE,
        resource=f"topic:{target}",
        apply=apply,
        sentence="Key, value and headers stay as they are; the time is new.",
        columns=("What", ""),
        rows=[
            ("to", f"{target}-{number}"),
            ("key", "null" if found.key is None else visible(show(found.key).line)),
            ("value", "null" if found.value is None else visible(show(found.value).line)),
        ],
        button="Send it again",
        then=view.url("t", target),
    )
