"""Tools for tests of programs that use Kafka: real broker processes, clusters, and failures on demand.

    from ottla.testing import running_broker, running_cluster

    with running_broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

    with running_cluster(3) as cluster:
        cluster.kill(cluster.leader_of("orders", 0))

The package installs a pytest plugin with the fixtures `ottla_broker`, `start_ottla_broker`, `shared_ottla_broker`,
`ottla_cluster` and `ottla_secure_cluster` (`ottla.testing.pytest_plugin`).
"""

from typing import TYPE_CHECKING

from ottla.testing.process import BrokerFailed, BrokerProcess
from ottla.testing.running import running_broker

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster, running_cluster
    from ottla.testing.secure import SecureCluster

__all__ = ["BrokerFailed", "BrokerProcess", "Cluster", "SecureCluster", "running_broker", "running_cluster"]


def __getattr__(name: str) -> object:
    # Every run of pytest imports this package, so the modules of a cluster load on demand.
    if name in ("Cluster", "running_cluster"):
        from ottla.testing import cluster

        found: object = getattr(cluster, name)
        return found
    if name == "SecureCluster":
        from ottla.testing.secure import SecureCluster

        return SecureCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
