"""The end-to-end probe of the console, on a real broker: what it writes, reads and commits, and what it tells."""

from __future__ import annotations

import subprocess

import pytest

from integration.prometheus_world import PROMTOOL
from ottla.admin.cluster import Cluster
from ottla.admin.groups import committed_offsets
from ottla.admin.partitions import LATEST, offsets_at
from ottla.admin.settings import ClusterSettings
from ottla.console import probe as probing
from ottla.console.clusters import OpenClusters
from ottla.console.probe import GROUP, TOPIC, Probe
from ottla.errors import ApiException


@pytest.fixture
def probe(broker):
    settings = ClusterSettings(bootstrap=((broker.host, broker.port),))
    return Probe(OpenClusters({"local": settings}, {}).first)


def test_a_round_writes_reads_and_commits_one_record(probe, broker):
    for _ in range(3):
        probe.round()
    assert (probe.produced, probe.received) == (3, 3)
    client = Cluster(ClusterSettings(bootstrap=((broker.host, broker.port),)))
    end = offsets_at(client, [(TOPIC, 0)], LATEST)[TOPIC, 0]
    assert committed_offsets(client, GROUP)[TOPIC, 0].offset == end
    client.close()
    for spelling, name in (
        ("", "ottla_probe_roundtrip_seconds_count"),
        ("kminion", "kminion_end_to_end_roundtrip_latency_seconds_count"),
    ):
        text = probing.exposition(probe, spelling)
        assert f'{name}{{cluster="local"}} 3' in text.splitlines()
        if PROMTOOL is not None:
            checked = subprocess.run(
                [PROMTOOL, "check", "metrics"], input=text, text=True, capture_output=True, check=False
            )
            assert "error" not in checked.stderr, checked.stderr


def test_a_failed_round_looks_the_topic_up_again(probe, monkeypatch):
    probe.round()

    def refuse(client, offset):
        raise ApiException(6, "not the leader any more")

    monkeypatch.setattr(probing, "_fetch", refuse)
    with pytest.raises(ApiException):
        probe.round()
    monkeypatch.undo()
    probe.round()
    assert (probe.produced, probe.received) == (3, 2)
