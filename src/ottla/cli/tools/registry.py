"""Which module holds which tool, and the name of Kafka's script for it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

TOOLS: Final = {
    "acls": "acls",
    "broker-api-versions": "broker_api_versions",
    "client-metrics": "client_metrics",
    "cluster": "cluster",
    "configs": "configs",
    "console-share-consumer": "console_share_consumer",
    "consume": "consume",
    "consumer-groups": "consumer_groups",
    "consumer-perf-test": "consumer_perf_test",
    "delegation-tokens": "delegation_tokens",
    "delete-records": "delete_records",
    "doctor": "doctor",
    "dump-log": "dump_log",
    "e2e-latency": "e2e_latency",
    "features": "features",
    "get-offsets": "get_offsets",
    "groups": "groups",
    "leader-election": "leader_election",
    "log-dirs": "log_dirs",
    "metadata-shell": "metadata_shell",
    "metadata-quorum": "metadata_quorum",
    "produce": "produce",
    "producer-perf-test": "producer_perf_test",
    "reassign-partitions": "reassign_partitions",
    "share-consumer-perf-test": "share_consumer_perf_test",
    "share-groups": "share_groups",
    "streams-application-reset": "streams_application_reset",
    "streams-groups": "streams_groups",
    "top": "top",
    "topics": "topics",
    "transactions": "transactions",
    "verifiable-consumer": "verifiable_consumer",
    "verifiable-producer": "verifiable_producer",
}
"""The tools that the help shows, and the module of each in this package."""

OLD_NAMES: Final = {
    "console-producer": "produce",
    "console-consumer": "consume",
}
"""Names of Kafka's scripts that differ from ours."""


def load(name: str) -> click.Command | None:
    """A tool by any of its names."""
    own_name = OLD_NAMES.get(name, name)
    module = TOOLS.get(own_name)
    if module is None:
        return None
    command: click.Command = getattr(import_module(f"ottla.cli.tools.{module}"), own_name.replace("-", "_"))
    return command
