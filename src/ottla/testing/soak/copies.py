"""Copies that grow beside a soak: a mirror into another cluster, and a table that a connector fills.

In the end their contents go into the history, where the checker compares them with what the cluster has.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.testing.checks.history import FilledTable, MirroredPartition, Recorder
from ottla.testing.running import running_broker

_PATIENCE_S: Final = 180.0
_LOOK_EACH_S: Final = 0.2
_SOURCE, _TARGET = "soak", "copy"
_TRANSFORMS: Final = "org.apache.kafka.connect.transforms."
_TEXT: Final = "org.apache.kafka.connect.storage.StringConverter"


class MirrorCopy:
    """`ottla mirror` of some topics into a broker of its own."""

    def __init__(self, source: str, target: str, directory: Path, topics: dict[str, int], group: str) -> None:
        self._bootstraps = (source, target)
        self._topics = topics
        self._group = group
        self._file = directory / "mirror.properties"
        self._log = directory / "mirror.log"
        given = {
            "clusters": f"{_SOURCE}, {_TARGET}",
            f"{_SOURCE}.bootstrap.servers": source,
            f"{_TARGET}.bootstrap.servers": target,
            f"{_SOURCE}->{_TARGET}.enabled": "true",
            f"{_SOURCE}->{_TARGET}.topics": ",".join(topics),
            f"{_SOURCE}->{_TARGET}.groups": group,
            "replication.factor": "1",
            "offset.storage.replication.factor": "1",
        }
        self._file.write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
        self._process = self._run()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ottla", "mirror", "run", str(self._file), *words]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def finish(self, recorder: Recorder) -> None:
        """Kill the mirror, let another one copy what is left, and record what the target has."""
        self.kill()
        self._process = self._run("--once")
        if self._process.wait(_PATIENCE_S) != 0:
            raise RuntimeError(f"the mirror failed, see {self._log}")
        source, target = self._bootstraps
        places = [(topic, number) for topic, count in self._topics.items() for number in range(count)]
        here = _committed(source, self._group)
        there = _committed(target, self._group)
        for (topic, number), records in read_committed(
            target, [(f"{_SOURCE}.{t}", n) for t, n in places]
        ).items():
            own = topic.removeprefix(f"{_SOURCE}.")
            positions = here.get((own, number)), there.get((topic, number))
            groups = {self._group: (positions[0] or 0, positions[1] or 0)} if any(positions) else {}
            recorder.add(MirroredPartition(_TARGET, f"{own}-{number}", tuple(records), groups))


def _committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    found: Sequence[TopicPartition] = asked.result(60).topic_partitions or []
    return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}


def read_committed(
    bootstrap: str, places: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """All committed records of partitions, by place."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in places])
    found: dict[tuple[str, int], list[tuple[int, str]]] = {place: [] for place in places}
    left = set(places)
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(left)} could not be read to the end")
            for message in consumer.consume(1000, 0.5):
                place = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    found[place].append((message.offset() or 0, (message.value() or b"").decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
    finally:
        consumer.close()
    return found


@contextlib.contextmanager
def running_mirror(source: str, directory: Path, topics: dict[str, int], group: str) -> Iterator[MirrorCopy]:
    """Run a mirror of topics and a group until the block ends."""
    with running_broker(directory / "mirror-target", {"num.partitions": 1}) as target:
        copy = MirrorCopy(source, target.bootstrap, directory, topics, group)
        try:
            yield copy
        finally:
            copy.kill()


class TableCopy:
    """A table in a file that Connect's JDBC sink fills with the records of a topic and their places."""

    def __init__(self, directory: Path, topic: str, partitions: int) -> None:
        self._file = directory.resolve() / "table.db"
        self._topic = topic
        self._partitions = tuple(f"{topic}-{number}" for number in range(partitions))

    @property
    def config(self) -> dict[str, str]:
        """The connector's. The table has no primary key, so that a row can be in it twice."""
        return {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "connection.url": f"jdbc:sqlite:{self._file}",
            "topics": self._topic,
            "table.name.format": "records",
            "auto.create": "true",
            "key.converter": _TEXT,
            "value.converter": _TEXT,
            "transforms": "hoist,place",
            "transforms.hoist.type": f"{_TRANSFORMS}HoistField$Value",
            "transforms.hoist.field": "record",
            "transforms.place.type": f"{_TRANSFORMS}InsertField$Value",
            "transforms.place.partition.field": "place",
            "transforms.place.offset.field": "position",
        }

    def finish(self, recorder: Recorder) -> None:
        """Wait until the table has as many rows as the topic has records, and record what it has."""
        expected = sum(
            partition in self._partitions
            for poll in recorder.history.polls
            if poll.final and poll.committed
            for partition, _, _ in poll.records
        )
        deadline = time.monotonic() + _PATIENCE_S
        while len(rows := self._rows()) < expected and time.monotonic() < deadline:
            time.sleep(_LOOK_EACH_S)
        recorder.add(FilledTable("soak-table", self._partitions, tuple(rows)))

    def _rows(self) -> list[tuple[str, int, str]]:
        with contextlib.closing(sqlite3.connect(self._file)) as database:
            try:
                found = database.execute("SELECT place, position, record FROM records").fetchall()
            except sqlite3.OperationalError:
                # The table does not exist yet.
                return []
        return [(f"{self._topic}-{place}", position, record) for place, position, record in found]
