"""Counts clicks in windows of 10 s with Quix Streams, exactly once: python quix_windows.py BOOTSTRAP INPUT OUTPUT
APPLICATION STATE_DIR"""

from __future__ import annotations

import sys


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
    clicks = app.dataframe(app.topic(source, key_deserializer="string", value_deserializer="string"))
    clicks.tumbling_window(10_000).count().current().to_topic(
        app.topic(target, key_serializer="string", value_serializer="json")
    )
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
