from __future__ import annotations

import pytest

from ottla.net.buffers import ReceiveBuffers
from ottla.testing.virtual_clock import VirtualClock
from unit.net.net_harness import Client, Service


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(clock: VirtualClock, service: Service) -> Client:
    return Client(clock, ReceiveBuffers(), service.apis, limit=8 << 20)
