"""Counts words with Quix Streams, exactly once: python quix.py BOOTSTRAP INPUT OUTPUT APPLICATION STATE_DIR"""

from __future__ import annotations

import sys
from typing import Any


def main(bootstrap: str, source: str, target: str, application: str, state_dir: str) -> None:
    from quixstreams import Application

    app = Application(
        broker_address=bootstrap,
        consumer_group=application,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state_dir,
        loglevel="WARNING",
    )

    def count(word: str, state: Any) -> int:
        seen = int(state.get("seen", 0)) + 1
        state.set("seen", seen)
        return seen

    lines = app.dataframe(app.topic(source, value_deserializer="string"))
    words = lines.apply(lambda line: line.lower().split(), expand=True).group_by(
        lambda word: word, name="word", value_serializer="string", value_deserializer="string"
    )
    words.apply(count, stateful=True).to_topic(
        app.topic(target, key_serializer="string", value_serializer="json")
    )
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
