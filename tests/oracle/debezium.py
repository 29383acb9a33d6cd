"""Debezium as the judge of change events: its connectors in a Java worker, and a comparison of events with ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from integration.connect_rest import eventually
from ottla import KafkaConsumer, TopicPartition
from ottla.testing.maven import classpath

CONNECTORS = (
    "io.debezium:debezium-connector-postgres:3.6.3.Final",
    "io.debezium:debezium-connector-mariadb:3.5.0.Final",
)
"""The newest of each on Maven Central."""
_RUN_ID = "__debezium.context.runId"
PROCESSED = ("ts_ms", "ts_us", "ts_ns")


def debezium_plugins(folder: Path) -> str:
    """A `plugin.path`: a folder of jars for each connector, whose classes do not see each other."""
    for coordinates in CONNECTORS:
        own = folder / coordinates.split(":")[1]
        own.mkdir(parents=True)
        for jar in classpath(coordinates).split(os.pathsep):
            (own / Path(jar).name).symlink_to(jar)
    return str(folder)


def records(bootstrap: str, topic: str, count: int, timeout_s: float = 60.0) -> list[tuple[Any, Any, Any]]:
    """Key, value and headers of the first records of a topic, which has no more than `count`."""
    found: list[tuple[Any, Any, Any]] = []
    with KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:

        def enough() -> bool:
            for batch in consumer.poll(100).values():
                for record in batch:
                    key, value = (json.loads(one) if one else None for one in (record.key, record.value))
                    found.append((key, value, [(name, json.loads(one)) for name, one in record.headers]))
            return len(found) >= count

        try:
            eventually(enough, timeout_s)
        except AssertionError:
            raise AssertionError(f"{topic} has {len(found)} records instead of {count}") from None
        assert not consumer.poll(300), f"{topic} has more than {count} records"
    return found


def all_records(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values of a topic with one partition, up to where it ends now."""
    place = TopicPartition(topic, 0)
    found: list[tuple[Any, Any]] = []
    with KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for batch in consumer.poll(100).values():
                for record in batch:
                    found.append(
                        tuple(json.loads(one) if one else None for one in (record.key, record.value))
                    )
    return found


def comparable(value: Any, prefix: str, at: tuple[str, ...] = ()) -> Any:
    """A record without what must differ: times of processing, the connector's version, and the topic's prefix."""
    if isinstance(value, dict):
        found = {}
        if value.get("op") == "t":
            # MariaDB's log has no row there: Debezium repeats the number that the event before it had.
            value = {**value, "source": {key: one for key, one in value["source"].items() if key != "row"}}
        snapshot = at[-1:] == ("source",) and value.get("snapshot") not in ("false", None)
        for key, one in value.items():
            path = (*at, key)
            processed = path[-2:-1] == ("payload",) and key in PROCESSED
            if processed or path[-2:] == ("source", "version"):
                continue
            if snapshot and key in (*PROCESSED, "lsn", "sequence", "txId", "file", "pos"):
                continue
            found[key] = comparable(one, prefix, path)
        return found
    if isinstance(value, list | tuple):
        return [comparable(one, prefix, at) for one in value if not _is_run_id(one)]
    if isinstance(value, str):
        return value.replace(prefix, "PREFIX")
    return value


def _is_run_id(value: Any) -> bool:
    return isinstance(value, list | tuple) and value[:1] in ([_RUN_ID], (_RUN_ID,))


def differences(left: Any, right: Any, at: str = "") -> list[str]:
    """Where two records differ, a line each; `left` is Debezium's."""
    if isinstance(left, dict) and isinstance(right, dict):
        found = []
        for key in [*left, *(one for one in right if one not in left)]:
            if key not in right:
                found.append(f"{at}.{key}: missing, Debezium has {left[key]!r}")
            elif key not in left:
                found.append(f"{at}.{key}: Debezium has none, but {right[key]!r} is there")
            else:
                found += differences(left[key], right[key], f"{at}.{key}")
        return found
    if isinstance(left, list) and isinstance(right, list):
        if all(isinstance(one, dict) and "field" in one for one in (*left, *right)):
            names = [one["field"] for one in left], [one["field"] for one in right]
            found = [] if names[0] == names[1] else [f"{at}: fields {names[1]}, Debezium has {names[0]}"]
            by_name = {one["field"]: one for one in right}
            for one in left:
                if one["field"] in by_name:
                    found += differences(one, by_name[one["field"]], f"{at}.{one['field']}")
            return found
        if len(left) != len(right):
            return [f"{at}: {right!r}, Debezium has {left!r}"]
        return [
            line
            for number, (one, other) in enumerate(zip(left, right, strict=True))
            for line in differences(one, other, f"{at}[{number}]")
        ]
    return [] if left == right and type(left) is type(right) else [f"{at}: {right!r}, Debezium has {left!r}"]


def compared(java: list[Any], ours: list[Any]) -> list[str]:
    """The differences of two topics, each once."""
    found: dict[str, str] = {}
    for number, (one, other) in enumerate(zip(java, ours, strict=False)):
        for line in differences(comparable(one, "judge"), comparable(other, "ours")):
            found.setdefault(line, f"record {number}{line}")
    if len(java) != len(ours):
        found["count"] = f"{len(ours)} records, Debezium has {len(java)}"
    return list(found.values())
