"""Kafka's own message classes and ours write the same bytes, mean the same by them, and refuse the same."""

from __future__ import annotations

import random

import pytest

from oracle.kafka_tools import needs_java
from oracle.wire_oracle import Question, ask
from ottla.testing.messages import from_kafka_json, random_message
from ottla.wire import EncodeError, UnsupportedVersionError, decode, encode
from ottla.wire.messages import all_messages

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]

EVERY_VERSION = [
    (cls, version) for cls in all_messages() for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]


def test_a_new_message_is_the_same_bytes_in_every_version():
    asked = [Question(cls, version, version, None) for cls, version in EVERY_VERSION]
    for question, answer in zip(asked, ask(asked), strict=True):
        assert answer.refused == ""
        assert encode(question.cls(), question.write_version) == answer.data, question


def test_every_message_in_every_version_is_read_and_written_alike():
    rng = random.Random(1)
    drawn = [
        (random_message(cls, version, rng, unknown_tags=unknown), unknown, cls, version)
        for cls, version in EVERY_VERSION
        for unknown in (False, False, True)
    ]
    asked = [Question(cls, version, version, encode(message, version)) for message, _, cls, version in drawn]
    for (message, unknown, cls, version), question, answer in zip(drawn, asked, ask(asked), strict=True):
        assert answer.refused == "", question
        assert answer.data == question.data, question
        assert decode(cls, version, answer.data) == message
        # The JSON has no unknown tags.
        if not unknown:
            assert from_kafka_json(cls, answer.json) == message


def test_a_message_of_one_version_is_written_or_refused_alike_in_another():
    rng = random.Random(2)
    asked = []
    for cls, read_version in EVERY_VERSION:
        for write_version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            if write_version != read_version:
                data = encode(random_message(cls, read_version, rng), read_version)
                asked.append(Question(cls, read_version, write_version, data))
    for question, answer in zip(asked, ask(asked), strict=True):
        assert question.data is not None
        message = decode(question.cls, question.read_version, question.data)
        if answer.refused:
            wanted = UnsupportedVersionError if answer.refused.startswith("unsupported") else EncodeError
            with pytest.raises(wanted):
                encode(message, question.write_version)
        else:
            assert encode(message, question.write_version) == answer.data, question
