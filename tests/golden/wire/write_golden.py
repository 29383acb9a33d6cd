"""Rewrites `messages.jsonl`: the bytes and the JSON of Kafka's own classes for a message of every kind and version.

Run it with a JVM and Maven at hand: `PYTHONPATH=tests .venv/bin/python tests/golden/wire/write_golden.py`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from oracle.wire_oracle import Question, ask
from ottla.testing.messages import random_message
from ottla.wire import encode
from ottla.wire.messages import all_messages

GOLDEN = Path(__file__).with_name("messages.jsonl")
MAX_BYTES = 600


def questions() -> list[Question]:
    """A message small enough to keep, for each class and version."""
    rng = random.Random(431)
    asked = []
    for cls in all_messages():
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            drawn = (encode(random_message(cls, version, rng), version) for _ in range(200))
            asked.append(
                Question(cls, version, version, next(data for data in drawn if len(data) < MAX_BYTES))
            )
    return asked


def main() -> None:
    asked = questions()
    with GOLDEN.open("w", encoding="utf-8") as out:
        for question, answer in zip(asked, ask(asked), strict=True):
            row = [question.cls.NAME, question.write_version, answer.data.hex(), answer.json]
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
