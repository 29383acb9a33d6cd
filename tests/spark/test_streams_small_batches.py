"""Small micro-batches go through the driver: the same records as by tasks, in one transaction with their offsets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsBuilder
from ottla.streams.runner import StreamsApp
from ottla.streams.settings import StreamsSettings

pytestmark = pytest.mark.java

TURNS = 4


@pytest.mark.parametrize(("state", "exactly_once"), [("count", True), ("reduce", True), ("count", False)])
def test_small_batches_are_written_by_the_driver(
    spark: Any,
    ottla_kafka: Any,
    name: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    exactly_once: bool,
) -> None:
    from ottla.pipeline.small_batches import SmallBatches

    source, target = ottla_kafka.make(name("in")), ottla_kafka.make(name("out"), 2)
    ottla_kafka.fill(source, ((key, str(turn)) for turn in range(TURNS) for key in "abc"))
    builder = StreamsBuilder()
    grouped = builder.stream(source).group_by_key()
    if state == "count":
        table, expected = grouped.count(), [str(turn + 1) for turn in range(TURNS)]
    else:
        table = grouped.reduce(lambda before, now: f"{before}{now}")
        expected = ["0", "01", "012", "0123"]
    table.to_stream().map_values(str).to(target)
    by_driver: list[int] = []
    write = SmallBatches.write

    def counted(small: SmallBatches, table: Any, *arguments: Any) -> Any:
        by_driver.append(table.num_rows)
        return write(small, table, *arguments)

    monkeypatch.setattr(SmallBatches, "write", counted)
    settings = StreamsSettings(
        ottla_kafka.bootstrap, state_dir=tmp_path, exactly_once=exactly_once, max_offsets_per_batch=3
    )
    app = StreamsApp(builder, name("app"), settings)
    app.start(available_now=True).wait()
    # The first batch tells what a batch makes of what it reads.
    assert by_driver == [3] * (TURNS - 1)
    found = Counter((one.key(), one.value()) for one in ottla_kafka.read(target))
    assert found == Counter((key.encode(), value.encode()) for key in "abc" for value in expected)
    if exactly_once:
        assert ottla_kafka.committed(name("app"), source) == {0: 3 * TURNS}
