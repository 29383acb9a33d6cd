"""Records of internal topics: there and back, and hostile bytes. `tests/oracle` compares the bytes with Kafka's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.formats import (
    BadRecord,
    Checkpoint,
    Heartbeat,
    OffsetSync,
    parse_run_key,
    parse_run_value,
    run_key,
    run_value,
)
from ottla.mirror.ledger import Note, note_key, parse_note_key
from ottla.mirror.runs import Run
from ottla.pipeline.writer import Place

NAMES = st.text(max_size=20)
PLACES = st.builds(Place, NAMES, st.integers(0, 2**31 - 1))
LONGS = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(OffsetSync, PLACES, LONGS, LONGS))
def test_offset_syncs_there_and_back(sync):
    assert OffsetSync.parse(sync.key(), sync.value()) == sync


@given(st.builds(Checkpoint, NAMES, PLACES, LONGS, LONGS, NAMES))
def test_checkpoints_there_and_back(checkpoint):
    assert Checkpoint.parse(checkpoint.key(), checkpoint.value()) == checkpoint


@given(st.builds(Heartbeat, NAMES, NAMES, LONGS))
def test_heartbeats_there_and_back(beat):
    assert Heartbeat.parse(beat.key(), beat.value()) == beat


@given(PLACES, st.builds(Run, LONGS, LONGS, LONGS))
def test_runs_there_and_back(place, run):
    assert parse_run_key(run_key(place, run)) == (place, run.upstream)
    assert parse_run_value(run_value(run)) == run


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_record_or_refused(key, value):
    for kind in (OffsetSync, Checkpoint, Heartbeat):
        try:
            kind.parse(key, value)
        except BadRecord:
            continue


def test_notes_are_offsets_of_connect():
    place = Place("orders", 3)
    key = note_key("primary", place)
    assert key == b'["MirrorSourceConnector",{"cluster":"primary","partition":3,"topic":"orders"}]'
    assert parse_note_key(key, "primary") == place
    assert parse_note_key(key, "other") is None
    assert parse_note_key(b"[]", "primary") is None
    note = Note(41, 39, 1, open=True, topic_id="abc")
    assert note.value() == b'{"offset":41,"target":39,"lane":1,"open":true,"topicId":"abc"}'
    assert Note.parse(note.value()) == note
    waiting = replace(note, stopped="others wrote there")
    assert Note.parse(waiting.value()) == waiting
    assert Note.parse(b'{"offset":7}') == Note(7), "MirrorMaker 2's"
    assert Note.parse(b"{}") is None


def test_a_text_that_is_too_long_is_refused():
    with pytest.raises(BadRecord, match="longer than 32767"):
        Heartbeat("a" * 40_000, "b", 1).key()
