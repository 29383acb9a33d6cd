"""Real-time mode: expressions without state; records leave as they arrive, not in micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsApp, StreamsBuilder, StreamsError, StreamsSettings, col


@pytest.mark.timeout(600)
def test_records_come_out_while_the_batch_is_still_open(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    source, target = ottla_kafka.make(name("in"), 1), ottla_kafka.make(name("out"), 1)
    b = StreamsBuilder()
    b.stream(source).filter(col("value").contains("a")).map_values(col("value").upper()).to(target)
    settings = StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path, real_time=True)
    app = StreamsApp(b, name("app"), settings).start()
    try:
        for turn in range(3):
            ottla_kafka.fill(source, [(b"k", b"a%d" % turn), (b"k", b"b%d" % turn)])
            found: list[bytes] = []
            while len(found) < turn + 1:
                assert not app.wait(timeout_s=0.5)
                found = [one.value() for one in ottla_kafka.read(target)]
            assert found == [b"A%d" % number for number in range(turn + 1)]
        assert app.status().get("batch") is None
    finally:
        app.stop()


def test_what_needs_python_or_state_is_refused(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    source, target = ottla_kafka.make(name("in"), 1), ottla_kafka.make(name("out"), 1)
    b = StreamsBuilder()
    b.stream(source).map_values(str.upper).to(target)
    settings = StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path, real_time=True)
    with pytest.raises(StreamsError, match="real-time mode is for topologies of expressions"):
        StreamsApp(b, name("app"), settings).start()
