"""The offsets of connectors over REST: shown, altered and reset. Sources have a store, sinks have their group."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.groups import Committed, alter_offsets, committed_offsets, delete_offsets
from ottla.admin.partitions import Partition
from ottla.admin.settings import ClusterSettings
from ottla.connect.failures import BadRequest, ConnectError
from ottla.connect.spi import Offsets, Place, SinkConnector, SourceConnector, partition_of
from ottla.connect.spi import partition_key as key_of
from ottla.connect.stores import OffsetStore
from ottla.json_types import Json, JsonObject

_METADATA: Final = re.compile(r"ottla (\d+)\.(\d+)")
TOPIC: Final = "kafka_topic"
PARTITION: Final = "kafka_partition"
OFFSET: Final = "kafka_offset"
_LINEAGE: Final = key_of({"ottla": "lineage"})


def group_of(name: str, config: Mapping[str, str]) -> str:
    """The group of a sink's offsets."""
    return config.get("consumer.override.group.id") or f"connect-{name}"


def lineage_of(metadata: str | None) -> tuple[int, int]:
    """The lineage and the cycle that a commit's metadata names."""
    match = _METADATA.match(metadata or "")
    return (int(match[1]), int(match[2])) if match else (0, 0)


def stored_lineage(store: OffsetStore, name: str) -> int:
    """The lineage that a sink's last reset began; 0 if there was none. A group without offsets cannot hold it."""
    found = store.read(_sink(name)).get(_LINEAGE, {}).get("lineage", 0)
    return found if isinstance(found, int) else 0


def _sink(name: str) -> str:
    """The name of a sink in the offsets topic: never that of a source that once had the same name."""
    return f"ottla-sink-{name}"


def source_offsets_json(offsets: Offsets) -> JsonObject:
    """The offsets of a source, as REST shows them."""
    return {
        "offsets": [{"partition": partition_of(key), "offset": offset} for key, offset in offsets.items()]
    }


def sink_offsets_json(settings: ClusterSettings, group: str) -> JsonObject:
    """The offsets of a sink, as REST shows them."""
    brokers = Cluster(settings)
    try:
        found = committed_offsets(brokers, group)
    finally:
        brokers.close()
    return {
        "offsets": [
            {"partition": {TOPIC: topic, PARTITION: partition}, "offset": {OFFSET: one.offset}}
            for (topic, partition), one in sorted(found.items())
        ]
    }


def answer(connector: SourceConnector | SinkConnector, done: str) -> dict[str, str]:
    """Kafka's text for offsets that were `altered` or `reset`."""
    if connector.alters_offsets():
        return {"message": f"The offsets for this connector have been {done} successfully"}
    return {
        "message": f"The Connect framework-managed offsets for this connector have been {done} successfully. "
        f"However, if this connector manages offsets externally, they will need to be manually {done} in the system "
        "that the connector uses."
    }


def parse_offsets(body: Json) -> list[tuple[JsonObject | None, JsonObject | None]]:
    """The pairs of a request; BadRequest if it has none.

    A body of another shape is answered with 500 and the first words of Kafka's message, as Kafka does.
    """
    if not isinstance(body, dict):
        raise ConnectError("Cannot deserialize value: the body is an object with 'offsets'")
    if set(body) - {"offsets"}:
        raise ConnectError(
            f"Unrecognized field \"{min(set(body) - {'offsets'})}\": the body has only 'offsets'"
        )
    found = body.get("offsets")
    if found is None or found == []:
        raise BadRequest("Partitions / offsets need to be provided for an alter offsets request")
    if not isinstance(found, list):
        raise ConnectError("Cannot deserialize value: 'offsets' is a list")
    pairs = []
    for one in found:
        if not isinstance(one, dict):
            raise ConnectError(f"Cannot construct instance of an offset from {one!r}: it is an object")
        if unknown := set(one) - {"partition", "offset"}:
            raise ConnectError(
                f"Unrecognized field \"{min(unknown)}\": an offset has 'partition' and 'offset'"
            )
        partition, offset = one.get("partition"), one.get("offset")
        for part in (partition, offset):
            if part is not None and not isinstance(part, dict):
                raise ConnectError("Cannot deserialize value: a partition and an offset are objects")
        pairs.append((partition, offset))
    return pairs


def alter_source(
    connector: SourceConnector,
    store: OffsetStore,
    name: str,
    pairs: Sequence[tuple[JsonObject | None, JsonObject | None]],
) -> None:
    """Sets offsets of a source."""
    for partition, offset in pairs:
        connector.check_offset(partition, offset)
    store.write(name, {key_of(partition or {}): offset for partition, offset in pairs})


def reset_source(store: OffsetStore, name: str) -> None:
    """Removes all offsets of a source."""
    store.write(name, dict.fromkeys(store.read(name)))


def parse_sink_offsets(
    pairs: Sequence[tuple[JsonObject | None, JsonObject | None]],
) -> dict[Place, int | None]:
    """The offsets of a sink; BadRequest in Kafka's words."""
    parsed: dict[Place, int | None] = {}
    for partition, offset in pairs:
        if partition is None:
            raise BadRequest("The partition for a sink connector offset cannot be null or missing")
        if TOPIC not in partition or PARTITION not in partition:
            raise BadRequest(
                f"The partition for a sink connector offset must contain the keys '{TOPIC}' and '{PARTITION}'"
            )
        if partition[TOPIC] is None:
            raise BadRequest("Kafka topic names must be valid strings and may not be null")
        if partition[PARTITION] is None:
            raise BadRequest("Kafka partitions must be valid numbers and may not be null")
        number = _whole(partition[PARTITION], "partition", "Partition")
        place = Place(str(partition[TOPIC]), number)
        if offset is None:
            parsed[place] = None
            continue
        if OFFSET not in offset:
            raise BadRequest(
                f"The offset for a sink connector should either be null or contain the key '{OFFSET}'"
            )
        parsed[place] = _whole(offset[OFFSET], "offset", "Offset")
    return parsed


def _whole(value: Json, what: str, title: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,19}", text):
        shown = "null" if value is None else text
        raise BadRequest(
            f"Failed to parse the following Kafka {what} value in the provided offsets: '{shown}'. "
            f"{title} values for sink connectors need to be integers."
        )
    return int(text)


def alter_sink(
    connector: SinkConnector,
    settings: ClusterSettings,
    store: OffsetStore,
    name: str,
    wanted: Mapping[Place, int | None] | None,
) -> None:
    """Sets offsets of a sink's group, in a new lineage: a rewind is a rewind. None removes all of them."""
    group = group_of(name, connector.config)
    brokers = Cluster(settings)
    try:
        held = committed_offsets(brokers, group)
        if wanted is None:
            wanted = {Place(*place): None for place in held}
        connector.check_offsets(wanted)
        known = [lineage_of(one.metadata)[0] for one in held.values()]
        lineage = 1 + max([*known, stored_lineage(store, name)])
        changed = {place: offset for place, offset in wanted.items() if offset is not None}
        kept = {place: one.offset for place, one in held.items() if place not in wanted}
        gone: list[Partition] = [
            (place.topic, place.partition) for place, offset in wanted.items() if offset is None
        ]
        marked: dict[Partition, Committed] = {}
        for place, offset in [*kept.items(), *changed.items()]:
            marked[place[0], place[1]] = Committed(offset, None, f"ottla {lineage}.0")
        if not marked:
            store.write(_sink(name), {_LINEAGE: {"lineage": lineage}})
        _write_group(brokers, group, marked, gone)
    finally:
        brokers.close()


def _write_group(
    brokers: Cluster, group: str, marked: Mapping[Partition, Committed], gone: Sequence[Partition]
) -> None:
    if marked:
        for place, code in alter_offsets(brokers, group, marked).items():
            raise_for(code, None, f"the offset of {place[0]}-{place[1]} in group {group}")
    if gone:
        response = delete_offsets(brokers, group, gone)
        raise_for(response.error_code, None, f"the offsets of group {group}")
        for topic in response.topics:
            for each in topic.partitions:
                raise_for(each.error_code, None, f"the offset of {topic.name}-{each.partition_index}")
