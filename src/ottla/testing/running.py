"""A real broker for a test or an example: `with running_broker() as broker:`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla.testing.process import BrokerProcess

QUICK_SETTINGS: Mapping[str, object] = {
    # The first member of a group does not wait for others.
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
"""Settings that differ from the defaults, so that tests do not wait for delays that only help production."""


def quick_broker(data: Path, settings: Mapping[str, object] | None = None) -> BrokerProcess:
    """Return a broker with settings for tests, not started yet."""
    return BrokerProcess(data, settings={**QUICK_SETTINGS, **(settings or {})})


@contextlib.contextmanager
def running_broker(
    data: Path | str | None = None, settings: Mapping[str, object] | None = None
) -> Iterator[BrokerProcess]:
    """Run a broker on a free port until the block ends. Clients connect to `broker.bootstrap`.

    The broker is a process: `broker.stop()`, `broker.kill()`, `broker.pause()` and `broker.restart()` simulate
    failures. Without `data` the broker uses a temporary directory, which is removed at the end.

    >>> from ottla import KafkaProducer
    >>> with running_broker(settings={"num.partitions": 3}) as broker:
    ...     producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    ...     producer.send("orders", b"first").get(timeout=30).topic
    'orders'
    """
    with contextlib.ExitStack() as stack:
        directory = (
            Path(data) if data is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        )
        broker = quick_broker(directory / "data" if data is None else directory, settings)
        stack.callback(broker.kill)
        broker.start()
        yield broker
        if broker.running:
            broker.stop()
