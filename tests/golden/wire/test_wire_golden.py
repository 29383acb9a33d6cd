"""What Kafka's own classes wrote, kept in a file: our bytes are theirs. `write_golden.py` made it."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.messages import from_kafka_json
from ottla.wire import decode, encode
from ottla.wire.messages import all_messages
from ottla.wire.schema import message_names

ROWS = [
    json.loads(line) for line in Path(__file__).with_name("messages.jsonl").read_text("utf-8").splitlines()
]
BY_NAME = {name: list(rows) for name, rows in groupby(ROWS, key=lambda row: row[0])}


def test_the_file_has_every_message_in_every_version():
    known = [(cls.NAME, v) for cls in all_messages() for v in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)]
    assert len(message_names()) == 279
    assert [(name, version) for name, version, _, _ in ROWS] == known


@pytest.mark.parametrize("name", BY_NAME)
def test_our_bytes_are_those_of_kafkas_classes(name: str):
    classes: dict[str, Any] = {cls.NAME: cls for cls in all_messages()}
    for _, version, hexed, reported in BY_NAME[name]:
        message = from_kafka_json(classes[name], reported)
        data = bytes.fromhex(hexed)
        assert encode(message, version) == data
        assert decode(classes[name], version, data) == message
