"""Tools for tests, of Ottla and of programs that use it: real broker processes, and faults to put them through.

    from ottla.testing import running_broker

    with running_broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

With pytest, the fixtures `ottla_broker` and `start_ottla_broker` are there once the package is installed.
"""

from ottla.testing.process import BrokerFailed, BrokerProcess
from ottla.testing.running import running_broker

__all__ = ["BrokerFailed", "BrokerProcess", "running_broker"]
