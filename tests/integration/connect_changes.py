"""What the tests of sources of changes have in common: a worker with JSON, and the events of a topic."""

from __future__ import annotations

import json

from integration.connect_rest import eventually, running_worker
from ottla import KafkaConsumer

JSON = "org.apache.kafka.connect.json.JsonConverter"


def worker(broker, **keys):
    return running_worker(broker.bootstrap, client_id="cdc", value_converter=JSON, key_converter=JSON, **keys)


def create(rest, name, given):
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def events(broker, topic, most=100_000):
    """Key, value and headers of each record."""
    with KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=700,
        isolation_level="read_committed",
    ) as consumer:
        found = []
        for record in consumer:
            key, value = (json.loads(one) if one else None for one in (record.key, record.value))
            found.append((key, value, dict(record.headers)))
            if len(found) == most:
                break
        return found


def changes(broker, topic):
    """Operation, row before and row after; a tombstone is None."""
    return [
        None
        if value is None
        else (value["payload"]["op"], value["payload"]["before"], value["payload"]["after"])
        for _, value, _ in events(broker, topic)
    ]


def arrived(rest, broker, name, topic, count):
    """Waits for so many records of a connector that does not fail."""

    def enough():
        _, status = rest.call("GET", f"/connectors/{name}/status")
        assert all(one["state"] != "FAILED" for one in status.get("tasks", [])), status
        return len(events(broker, topic)) >= count

    eventually(enough)
    found = changes(broker, topic)
    assert len(found) == count
    return found


def failure(rest, name):
    rest.await_states(name, "RUNNING", "FAILED")
    return rest.call("GET", f"/connectors/{name}/tasks/0/status")[1]["trace"].splitlines()[0]
