"""A real broker for a test or an example: `with running_broker() as broker:` and its directory goes with it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla.testing.process import BrokerProcess

QUICK_SETTINGS: Mapping[str, object] = {
    # The first member of a group does not wait for others: a test knows how many it has.
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
"""What differs from a broker's defaults, so that tests do not wait for what helps production only."""


def quick_broker(data: Path, settings: Mapping[str, object] | None = None) -> BrokerProcess:
    """A broker with the settings of tests, not started yet."""
    return BrokerProcess(data, settings={**QUICK_SETTINGS, **(settings or {})})


@contextlib.contextmanager
def running_broker(
    data: Path | str | None = None, settings: Mapping[str, object] | None = None
) -> Iterator[BrokerProcess]:
    """A broker that answers on `broker.bootstrap`, on a port of its own, until the block ends.

    It is a process: `broker.stop()`, `broker.kill()` and `broker.restart()` do to it what a day in production
    does. Without a directory of the caller's its data is gone at the end.
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
