"""FileStreamSink: what a cycle that did not end has written is cut off, the very first cycle's too."""

from __future__ import annotations

from pathlib import Path

from ottla.connect.data.record import SinkRecord
from ottla.connect.sinks.file_stream import _FileWriter
from ottla.connect.spi import Place, SinkCycle

PLACE = Place("lines", 0)
CYCLE = SinkCycle("copy", 0, 1, ())


def write(path: Path, text: str) -> _FileWriter:
    """A run of the sink that is killed after its lines were written, before its commit."""
    writer = _FileWriter(path)
    writer.positions([PLACE], 0)
    writer.write(
        CYCLE, iter([SinkRecord(topic="lines", partition=0, value=text)]), lambda record, error: None
    )
    writer.stop()
    return writer


def test_the_first_cycle_that_did_not_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write(path, "a line")
    assert path.read_text() == "a line\n"
    assert _FileWriter(path).positions([PLACE], 0) == {}
    assert path.read_text() == ""


def test_lines_that_were_there_before_the_first_cycle_stay(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("from before\n")
    write(path, "a line")
    _FileWriter(path).positions([PLACE], 0)
    assert path.read_text() == "from before\n"
