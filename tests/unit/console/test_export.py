"""Files of records: what is written part by part is one file that other programs read."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pytest
from pyarrow import parquet

from ottla.console import parquet as writing
from ottla.console.pages.export import Csv, JsonLines, writer_of
from ottla.console.parquet import Cells, Parquet
from ottla.console.web import BadInput

FIRST = Cells(
    1_700_000_000_123, 2, 2**40, "k", '{"n": 12345678901234567890}', [("a", "1"), ("a", "2"), ("b", None)]
)
EMPTY = Cells(-1, 0, 0, None, None, [])


def test_a_parquet_file_keeps_every_column_and_repeated_headers():
    file = Parquet()
    data = file.add([FIRST]) + file.add([EMPTY]) + file.end()
    first, empty = parquet.read_table(io.BytesIO(data)).to_pylist()
    assert first == {
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        "partition": 2,
        "offset": 2**40,
        "key": "k",
        "value": '{"n": 12345678901234567890}',
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}, {"key": "b", "value": None}],
    }
    assert (empty["key"], empty["value"], empty["headers"]) == (None, None, [])


def test_a_parquet_file_goes_out_group_by_group(monkeypatch):
    monkeypatch.setattr(writing, "_GROUP_RECORDS", 100)
    file = Parquet()
    parts = [file.add([FIRST] * 60) for _ in range(5)]
    assert [bool(part) for part in parts] == [False, True, False, True, False]
    found = parquet.ParquetFile(io.BytesIO(b"".join(parts) + file.end()))
    assert [found.metadata.row_group(index).num_rows for index in range(found.num_row_groups)] == [
        120,
        120,
        60,
    ]


def test_few_large_records_go_out_too(monkeypatch):
    monkeypatch.setattr(writing, "_GROUP_CHARS", 1000)
    assert Parquet().add([FIRST._replace(value="x" * 1000)]) != b""


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_nothing_found_is_a_whole_file(kind):
    file = writer_of(kind)
    data = file.add([]) + file.end()
    expected = {"jsonl": b"", "csv": b"timestamp,partition,offset,key,value,headers\r\n"}
    if kind in expected:
        assert data == expected[kind]
    else:
        assert parquet.read_table(io.BytesIO(data)).num_rows == 0


def test_the_other_formats_tell_the_same():
    (line,) = JsonLines().add([FIRST]).splitlines()
    assert json.loads(line)["value"] == FIRST.value
    (row,) = csv.DictReader(io.StringIO(Csv().add([FIRST]).decode()))
    assert (row["offset"], row["value"]) == (str(2**40), FIRST.value)


def test_a_cell_is_no_formula():
    (row,) = csv.DictReader(io.StringIO(Csv().add([FIRST._replace(value="=1+1")]).decode()))
    assert row["value"] == "'=1+1"


def test_a_format_that_cannot_be_written_is_refused_with_a_sentence(monkeypatch):
    with pytest.raises(BadInput, match="There is no format 'xlsx': jsonl, csv, parquet are"):
        writer_of("xlsx")
    monkeypatch.setattr(writing, "is_installed", lambda: False)
    with pytest.raises(BadInput, match="need pyarrow"):
        writer_of("parquet")
