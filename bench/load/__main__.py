"""`python -m bench.load KIND JSON`: one run; its figures as JSON on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from bench.load import Load, client, coordinated, gaps, groups, idle_tls, latency, librdkafka, logins, sockets


def _sink(load: Load) -> dict[str, float]:
    # Spark's libraries, which nothing else here needs.
    from bench.load.sink import sink

    return sink(load)


def _read_with_ottla(load: Load) -> dict[str, float]:
    from bench.load.spark_reader import with_ottla

    return with_ottla(load)


def _read_with_spark(load: Load) -> dict[str, float]:
    from bench.load.spark_reader import with_spark

    return with_spark(load)


KINDS: dict[str, Callable[[Load], dict[str, float]]] = {
    "produce": librdkafka.produce,
    "produce-for": librdkafka.produce_for,
    "consume": librdkafka.consume,
    "client-produce": client.produce,
    "client-consume": client.consume,
    "peer-produce": client.peer_produce,
    "peer-consume": client.peer_consume,
    "latency": latency.send,
    "latency-read": latency.read,
    "swarm": sockets.swarm,
    "drain": sockets.drain,
    "logins": logins.logins,
    "idle-tls": idle_tls.idle_tls,
    "rebalance": groups.rebalance,
    "commits": groups.commits,
    "bare-commits": coordinated.commits,
    "bare-transactions": coordinated.transactions,
    "gaps": gaps.gaps,
    "transactions": groups.transactions,
    "sink": _sink,
    "read-with-ottla": _read_with_ottla,
    "read-with-spark": _read_with_spark,
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(KINDS[sys.argv[1]](Load(**json.loads(sys.argv[2])))))
