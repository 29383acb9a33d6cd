"""Streams and the sink on a secured cluster: they work, and the password is in nothing that Spark keeps or shows."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla import KafkaAdminClient, NewTopic
from ottla.testing import running_cluster


def holders(folder: Path, secret: str) -> list[str]:
    """The files that have a secret in them, plain or in base64."""
    wanted = [secret.encode(), base64.b64encode(secret.encode())[:-4]]
    found = []
    # Spark removes folders of its own meanwhile; os.walk passes over what is gone.
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and any(text in path.read_bytes() for text in wanted):
                    found.append(str(path.relative_to(folder)))
    return found


@pytest.mark.timeout(400)
def test_the_password_is_in_no_checkpoint_plan_log_or_page(tmp_path: Path) -> None:
    script = Path(__file__).with_name("secured_application.py")
    with running_cluster(1, tmp_path / "cluster", secure=True) as cluster:
        cluster.add_tenant("words", "words.")
        with KafkaAdminClient(**cluster.settings_of("words")) as admin:
            admin.create_topics([NewTopic(f"words.{name}", 2, 1) for name in ("in", "out", "numbers")])
        producer = Producer(cluster.librdkafka_settings_of("words"))
        for line in ("dear Milena", "dear Max", "dear Ottla"):
            producer.produce("words.in", line)
        assert producer.flush(30) == 0
        folder = tmp_path / "run"
        folder.mkdir()
        secret = cluster.settings_of("words")["sasl_plain_password"]
        with (folder / "out.txt").open("wb") as out:
            done = subprocess.run(
                [sys.executable, str(script), str(cluster.properties_of("words")), str(folder)],
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=380,
            )
        said = (folder / "out.txt").read_text()
        assert done.returncode == 0, said[-6000:]
        assert "numbers: 50" in said
        assert "words: 4" in said
        # What is searched has to be there.
        assert "ConsumerConfig values" in said
        assert "== /SQL/" in said
        assert list((folder / "state").rglob("commits/0"))
        assert any(path.is_file() for path in (folder / "events").rglob("*"))
        assert holders(folder, secret) == []
        consumer = Consumer(
            {
                **cluster.librdkafka_settings_of("words"),
                "group.id": "words.r",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["words.out"])
        counts: dict[bytes, bytes] = {}
        while counts.get(b"dear") != (3).to_bytes(8, "big"):
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            counts[message.key()] = message.value()
        consumer.close()
        assert secret not in cluster.logs()
