"""Small batches reach Spark with their plan, and what is not small or fails is left to tasks."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import write_with_length
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.streaming import python_streaming_source_runner as planner

from ottla.pipeline.reader import OttlaDataSource, RangePartition, TopicStreamReader
from ottla.pipeline.small_reads import MOST_OFFSETS
from ottla.streams import StreamsBuilder, col
from ottla.streams.runner import StreamsApp
from ottla.streams.settings import StreamsSettings

pytestmark = pytest.mark.java

PLANNED, READ, EMPTY = 0, 1, 2
"""What PySpark's planner says of the rows of a batch."""


def planned(source: OttlaDataSource, reader: TopicStreamReader, start: Any, end: Any) -> tuple[Any, ...]:
    """What Spark's JVM is sent when it asks for the partitions of a batch."""
    asked, answer = io.BytesIO(), io.BytesIO()
    for offsets in (start, end):
        write_with_length(json.dumps(offsets).encode(), asked)
    asked.seek(0)
    planner.partitions_func(reader, source, source.schema(), 10_000, asked, answer)
    answer.seek(0)

    def number() -> int:
        (found,) = struct.unpack("!i", answer.read(4))
        return int(found)

    partitions = [pickle.loads(answer.read(number())) for _ in range(number())]
    said, rows = number(), []
    if said == READ:
        number()
        rows = [row for batch in ArrowStreamSerializer().load_stream(answer) for row in batch.to_pylist()]
    return partitions, said, rows


def test_a_small_batch_is_read_where_it_is_planned(ottla_kafka: Any, name: Any) -> None:
    topic = ottla_kafka.make(name("in"), 2)
    ottla_kafka.fill(topic, [(b"a", b"%d" % number) for number in range(30)], 0)
    ottla_kafka.fill(topic, [(b"b", b"%d" % number) for number in range(20)], 1)
    source = OttlaDataSource(
        {
            "kafka.bootstrap.servers": ottla_kafka.bootstrap,
            "subscribe": topic,
            "columns": "partition,offset,key,value",
        }
    )
    reader = source.streamReader(source.schema())
    start, end = {topic: {"0": 0, "1": 5}}, {topic: {"0": 30, "1": 20}}
    partitions, said, rows = planned(source, reader, start, end)
    assert said == READ
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, number) for number in range(30)),
        *((1, number) for number in range(5, 20)),
    ]
    # Spark would read the one partition of the batch, if it had lost the rows.
    (partition,) = partitions
    assert isinstance(partition, RangePartition)
    assert [row for batch in reader.read(partition) for row in batch.to_pylist()] == rows

    # The next batch is planned by the same reader, and the lag is known.
    assert planned(source, reader, end, end) == ([], PLANNED, [])
    reader.latestOffset(start, reader.getDefaultReadLimit())
    assert reader.reportLatestOffset() == end
    answer = io.BytesIO()
    planner.report_latest_offset_func(reader, answer)
    assert json.loads(answer.getvalue()[4:]) == end

    # A large one is for tasks, one for each partition.
    ottla_kafka.fill(topic, [(b"a", b"more")] * (MOST_OFFSETS + 1), 0)
    partitions, said, _ = planned(source, reader, start, {topic: {"0": 31 + MOST_OFFSETS, "1": 20}})
    assert said == PLANNED and len(partitions) == 2
    reader.stop()


def test_a_function_that_fails_in_a_small_batch_fails_in_a_task(ottla_kafka: Any, name: Any) -> None:
    topic = ottla_kafka.make(name("in"), 1)
    ottla_kafka.fill(topic, [(b"a", b"1")], 0)
    options = {"kafka.bootstrap.servers": ottla_kafka.bootstrap, "subscribe": topic}
    source = OttlaDataSource(options)
    reader = TopicStreamReader(source.streamReader(source.schema())._options, b"\x80")
    partitions, said, _ = planned(source, reader, {topic: {"0": 0}}, {topic: {"0": 1}})
    assert said == PLANNED
    with pytest.raises(pickle.UnpicklingError):
        list(reader.read(partitions[0]))
    reader.stop()


def test_a_planner_whose_socket_spark_has_closed_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    source = OttlaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "in"})
    reader = source.streamReader(source.schema())
    try:
        raise EOFError
    except EOFError:
        reader.stop()
    for error in (BrokenPipeError(), ValueError("a fault of the planner")):
        sys.excepthook(type(error), error, None)
    shown = capsys.readouterr().err
    assert "a fault of the planner" in shown and "BrokenPipeError" not in shown


def test_rows_that_a_step_leaves_out_are_no_rows(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    source, target = ottla_kafka.make(name("in"), 2), ottla_kafka.make(name("out"), 2)
    b = StreamsBuilder()
    b.stream(source).filter(col("value") != "no").group_by_key().reduce(lambda _, now: now).to_stream().to(
        target
    )
    settings = StreamsSettings(bootstrap_servers=ottla_kafka.bootstrap, state_dir=tmp_path)
    topology, application_id = b.build(), name("app")
    for turn, value in enumerate((b"no", b"yes", b"no", b"again")):
        ottla_kafka.fill(source, [(b"k%d" % turn, value)])
        app = StreamsApp(topology, application_id, settings)
        app.start(available_now=True).wait()
        assert app.status()["lag"] == 0
    assert sorted(message.value() for message in ottla_kafka.read(target)) == [b"again", b"yes"]
