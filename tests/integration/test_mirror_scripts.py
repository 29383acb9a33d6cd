"""The scripts of MirrorMaker 1 and 2, called as their users call them."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from integration.mirror_world import (
    assert_same_records,
    connect,
    keys,
    make_topic,
    mirror_process,
    produce,
    wait_for,
    write_file,
)
from ottla.testing.ports import free_ports

pytestmark = pytest.mark.slow

_BIN = Path(__file__).parents[2] / "bin"


def script(name: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A copy of a script that finds this environment's `ottla`."""
    copy = folder / name
    for each in (name, "ottla-run.sh"):
        (folder / each).write_bytes((_BIN / each).read_bytes())
        (folder / each).chmod(0o755)
    (folder / "ottla").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    (folder / "ottla").chmod(0o755)
    return subprocess.run(
        [str(copy), *words], capture_output=True, text=True, timeout=120, cwd=folder, env=dict(os.environ)
    )


def topics(bootstrap: str) -> set[str]:
    cluster = connect(bootstrap)
    try:
        return {one.name or "" for one in cluster.metadata(None).topics}
    finally:
        cluster.close()


def test_mirrormaker_1_copies_what_its_flags_name(start_ottla_broker, tmp_path: Path) -> None:
    source, target = start_ottla_broker("source").bootstrap, start_ottla_broker("target").bootstrap
    for topic in ("orders", "payments", "other"):
        make_topic(source, topic, 2)
        produce(source, topic, 30)
    consumer = {"bootstrap.servers": source, "group.id": "mirror", "auto.offset.reset": "earliest"}
    files = [
        *("--consumer.config", str(write_file(tmp_path / "consumer.properties", consumer))),
        *(
            "--producer.config",
            str(write_file(tmp_path / "producer.properties", {"bootstrap.servers": target})),
        ),
    ]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return script("kafka-mirror-maker.sh", *files, *words, folder=tmp_path)

    done = run(
        "--whitelist", "orders|pay.*", "--num.streams", "2", "--abort.on.send.failure", "true", "--once"
    )
    assert done.returncode == 0, done.stderr
    assert "MirrorMaker 1 ended with Kafka 3" in done.stderr
    for topic in ("orders", "payments"):
        assert assert_same_records(source, topic, target, topic) == 30
    assert "other" not in topics(target)
    refused = run("--include", "orders", "--message.handler", "com.example.Handler")
    assert refused.returncode == 1 and "com.example.Handler is for a Java class" in refused.stderr


def test_mirrormaker_2_runs_the_flows_into_the_clusters_that_are_named(
    start_ottla_broker, tmp_path: Path
) -> None:
    first, second, third = (start_ottla_broker(name).bootstrap for name in ("a", "b", "c"))
    make_topic(first, "orders")
    produce(first, "orders", 30)
    given = keys(first, second) | {
        "clusters": "A, B, C, D",
        "C.bootstrap.servers": third,
        "D.bootstrap.servers": "127.0.0.1:1",
        "A->C.enabled": "true",
        "A->D.enabled": "true",
    }
    file = str(write_file(tmp_path / "mm2.properties", given))
    done = script("connect-mirror-maker.sh", file, "--clusters", "B", "C", "--once", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for target in (second, third):
        assert assert_same_records(first, "orders", target, "A.orders") == 30
    wrong = script("connect-mirror-maker.sh", file, "--clusters", "E", "--once", folder=tmp_path)
    assert wrong.returncode == 1
    assert "--clusters E: the file names only A, B, C, D" in wrong.stderr


def test_prometheus_reads_how_far_a_mirror_is(start_ottla_broker, tmp_path: Path) -> None:
    source, target = start_ottla_broker("source").bootstrap, start_ottla_broker("target").bootstrap
    make_topic(source, "orders", 2)
    produce(source, "orders", 30)
    file = write_file(tmp_path / "mm2.properties", keys(source, target))
    (port,) = free_ports(1)
    page = f"http://127.0.0.1:{port}/metrics"

    def sums() -> Counter[str]:
        try:
            text = urllib.request.urlopen(page, timeout=30).read().decode()
        except urllib.error.URLError:
            return Counter()
        found: Counter[str] = Counter()
        for sample in (line for line in text.splitlines() if not line.startswith("#")):
            found[sample.partition("{")[0]] += int(sample.rpartition(" ")[2])
        return found

    with (tmp_path / "log").open("ab") as log:
        process = mirror_process(file, log, "--metrics", f"127.0.0.1:{port}")
    try:
        name = "kafka_connect_mirror_mirrorsourceconnector"
        wait_for(lambda: sums()[f"{name}_record_count"] == 30)
        found = sums()
        assert found[f"{name}_byte_count"] > 300
        assert found["ottla_mirror_lag_offsets"] == found["ottla_mirror_partition_stopped"] == 0
        assert found["ottla_mirror_flow_running"] == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(page + "s", timeout=30)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    taken = script("connect-mirror-maker.sh", str(file), "--metrics", "9404", folder=tmp_path)
    assert taken.returncode == 1 and "must be HOST:PORT" in taken.stderr
