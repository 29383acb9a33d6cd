"""Fixtures of the controller's tests; what they are made of is in `controller_harness.py`."""

from __future__ import annotations

import pytest

from ottla.controller.controller import Controller
from ottla.controller.settings import Settings
from ottla.metadata.bootstrap import bootstrap_records
from ottla.testing.virtual_clock import VirtualClock
from unit.controller.controller_harness import Answers, FakeLog, settings_with


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def settings() -> Settings:
    return settings_with()


@pytest.fixture
def metadata_log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def controller(metadata_log: FakeLog, clock: VirtualClock, settings: Settings) -> Controller:
    """A controller that is not the leader yet."""
    made = Controller(metadata_log, clock, settings, bootstrap_records=bootstrap_records())
    metadata_log.listener = made
    return made


@pytest.fixture
def answers() -> Answers:
    return Answers()
