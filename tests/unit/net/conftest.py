from __future__ import annotations

import pytest
from net_harness import Client, Service

from ottla.clock import VirtualClock
from ottla.net.buffers import ReceiveBuffers


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(clock: VirtualClock, service: Service) -> Client:
    return Client(clock, ReceiveBuffers(), service.apis, limit=8 << 20)
