"""Tools for tests, of Ottla and of programs that use it: real broker processes, and faults to put them through.

    from ottla.testing import running_broker, running_cluster

    with running_broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

    with running_cluster(3) as cluster:
        cluster.kill(cluster.leader_of("orders", 0))

With pytest, the fixtures `ottla_broker`, `start_ottla_broker` and `ottla_cluster` are there once the package is
installed.
"""

from typing import TYPE_CHECKING

from ottla.testing.process import BrokerFailed, BrokerProcess
from ottla.testing.running import running_broker

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster, running_cluster

__all__ = ["BrokerFailed", "BrokerProcess", "Cluster", "running_broker", "running_cluster"]


def __getattr__(name: str) -> object:
    # Every run of pytest imports this package: what formats a cluster is loaded by those who want one.
    if name in ("Cluster", "running_cluster"):
        from ottla.testing import cluster

        found: object = getattr(cluster, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
