"""confluent-kafka with `group.protocol=consumer`, in the form that `group_members` runs."""

from __future__ import annotations

from typing import Any

import confluent_kafka

from integration.group_members import Confluent


class NewProtocol(Confluent):
    """A consumer of the next-generation protocol: the broker assigns and sets the heartbeat."""

    def __init__(
        self, bootstrap: str, group: str, *topics: str, commits: bool = False, **options: Any
    ) -> None:
        self.owned = frozenset()
        self._commits = commits
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{key.replace("_", "."): value for key, value in options.items()},
            }
        )
        self.consumer.subscribe(list(topics))

    def poll(self) -> list[tuple[int, int, bytes]]:
        found = super().poll()
        if found and self._commits:
            self.consumer.commit(asynchronous=False)
        return found
