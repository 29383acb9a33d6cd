"""The commands by area: the page that `ottla` without arguments shows. It loads none of the commands."""

from __future__ import annotations

from typing import Final

AREAS: Final = (
    (
        "Run",
        {
            "demo": "See all of it at work: a broker, records, pipelines on Spark.",
            "start": "Run a node, or several.",
            "console": "Look at clusters in a browser.",
            "storage": "Format a node's directories; look at them.",
            "migrate": "Replace Apache Kafka by Ottla node by node, and back.",
            "secure": "Make a secured cluster, its users and its tenants.",
            "doctor": "Check that all is well, and say what to do where it is not.",
            "top": "Watch a cluster: rates, lag, partitions in trouble.",
            "profile": "Clusters by name, with their settings and credentials.",
            "completion": "Completion of commands, topics and groups for your shell.",
        },
    ),
    (
        "Topics and records",
        {
            "topics": "Create, delete, describe or change topics.",
            "produce": "Write records from standard input.",
            "consume": "Print the records of topics.",
            "get-offsets": "Show where partitions begin and end.",
            "delete-records": "Delete records up to an offset.",
            "configs": "Show and change settings, quotas and users.",
            "registry": "Run a schema registry.",
            "schemas": "Look at schemas, check, register and delete them.",
        },
    ),
    (
        "Groups and transactions",
        {
            "groups": "List groups of all kinds.",
            "consumer-groups": "List, describe, reset and delete consumer groups.",
            "share-groups": "The same for share groups.",
            "streams-groups": "The same for groups of Streams applications.",
            "streams-application-reset": "Reset a Streams application.",
            "console-share-consumer": "Print records as a member of a share group.",
            "transactions": "List, describe and abort transactions.",
        },
    ),
    (
        "Cluster",
        {
            "cluster": "The cluster's id and its nodes.",
            "broker-api-versions": "Which versions of which APIs the brokers speak.",
            "features": "Feature levels.",
            "metadata-quorum": "The controllers' quorum.",
            "reassign-partitions": "Move partitions from broker to broker.",
            "leader-election": "Elect leaders of partitions.",
            "log-dirs": "What lies in the log directories of brokers.",
            "acls": "List, add or remove access control entries.",
            "delegation-tokens": "Create, renew, expire or describe tokens.",
            "client-metrics": "Choose the metrics that clients send.",
        },
    ),
    (
        "Files",
        {
            "dump-log": "Print segments, indexes and snapshots.",
            "metadata-shell": "Look into a snapshot, or a log, of the metadata.",
        },
    ),
    (
        "Pipelines",
        {
            "connect": "Run a Connect worker; validate and try connectors.",
            "connectors": "Look at connectors and change them, on any Connect cluster.",
            "mirror": "Mirror topics and groups to another cluster, and look at a mirror.",
            "spark": "A local Spark for Streams, Connect and Mirror.",
            "streams": "Run Streams applications on Spark; look at them, stop and reset them.",
        },
    ),
    (
        "Measuring",
        {
            "producer-perf-test": "How fast records are written.",
            "consumer-perf-test": "How fast topics are read.",
            "share-consumer-perf-test": "How fast a share group reads.",
            "e2e-latency": "How long a record takes from end to end.",
            "verifiable-producer": "Write numbers and tell of each.",
            "verifiable-consumer": "Read and tell of each step.",
        },
    ),
)
"""Areas with their commands and a line about each."""

OTHER: Final = "More"


def by_area(names: list[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The available commands by area; commands without an area come last."""
    found = [
        (title, [(name, text) for name, text in commands.items() if name in names])
        for title, commands in AREAS
    ]
    known = {name for _, commands in AREAS for name in commands}
    found.append((OTHER, [(name, "") for name in names if name not in known]))
    return [(title, commands) for title, commands in found if commands]
