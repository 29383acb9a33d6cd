"""A queue whose broker is killed again and again: nothing that was acknowledged comes back, and nothing is lost."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable

import pytest

from integration.share_member import ACCEPT, RELEASE, ShareMember, acquired
from integration.test_share_wire import make, produce
from ottla.errors import ErrorCode
from ottla.testing.process import BrokerProcess

RECORDS = 2_000
KILLS = 6


@pytest.mark.slow
def test_acknowledged_records_stay_gone_through_kills(
    start_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    rng = random.Random(7)
    broker = start_broker()
    make(broker, topic)
    for start in range(0, RECORDS, 100):
        produce(broker, topic, 100, start=start)
    accepted: set[int] = set()
    everything = set(range(RECORDS))
    unknown: set[int] = set()
    """Acknowledged, but the broker died before it answered."""
    for life in range(KILLS + 1):
        with contextlib.closing(ShareMember(broker.host, broker.port, topic, topic).join()) as member:
            last_life = life == KILLS
            rounds = 0
            end = time.monotonic() + 120
            while last_life or rounds < 12:
                rounds += 1
                part = member.fetch(max_records=25, share_acquire_mode=1, max_wait_ms=300)
                held = acquired(part)
                if not held and last_life and (accepted | unknown == everything or time.monotonic() > end):
                    break
                for first, last, count in held:
                    offsets = set(range(first, last + 1))
                    assert not offsets & accepted, f"{sorted(offsets & accepted)} came again"
                    kind = ACCEPT if last_life or count > 2 or rng.random() < 0.8 else RELEASE
                    if not last_life and rounds == 12:
                        broker.kill()
                        with pytest.raises(OSError):
                            member.acknowledge(first, last, [kind])
                        unknown |= offsets
                        break
                    assert member.acknowledge(first, last, [kind]) is ErrorCode.NONE
                    if kind == ACCEPT:
                        accepted |= offsets
        if not last_life:
            broker.kill()
            broker.start()
    assert accepted | unknown == everything
