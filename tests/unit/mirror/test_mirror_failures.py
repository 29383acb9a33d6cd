"""Which failures end a mirror, and which ones it waits for."""

from __future__ import annotations

import threading

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.mirror import mirror as mirrors
from ottla.mirror.config import mirror_config
from ottla.mirror.flow import Flow
from ottla.mirror.mirror import FlowDriver
from ottla.mirror.runners import ThreadRunner

_KEYS = {
    "clusters": "A, B",
    "A.bootstrap.servers": "127.0.0.1:1",
    "B.bootstrap.servers": "127.0.0.1:2",
    "A->B.enabled": "true",
}


class _Failing(FlowDriver):
    """A driver whose copying fails with one code after another."""

    codes: list[ErrorCode]

    def _mirror(self) -> None:
        if self.codes:
            raise ApiException(self.codes.pop(0), "no")


def driver(*codes: ErrorCode, once: bool = False) -> _Failing:
    flow = mirror_config(_KEYS).flow("A", "B")
    made = _Failing(flow, lambda _: ThreadRunner(), threading.Event(), once)
    made.codes = list(codes)
    return made


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(mirrors, "_FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize("once", [True, False])
def test_a_failure_that_does_not_pass_ends_the_flow_with_its_sentence(once):
    one = driver(ErrorCode.NETWORK_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED, once=once)
    one.run()
    assert one.failure == "TOPIC_AUTHORIZATION_FAILED: no" and not one.codes


def test_failures_that_pass_are_waited_for():
    one = driver(ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR)
    one.run()
    assert one.failure is None and not one.codes


def test_a_mirror_that_runs_once_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(mirrors, "_ONCE_PATIENCE_S", -1.0)
    one = driver(*[ErrorCode.NETWORK_EXCEPTION] * 3, once=True)
    one.run()
    assert one.failure == "NETWORK_EXCEPTION: no" and len(one.codes) == 2


def test_a_cluster_that_does_not_answer_is_named_at_once():
    runner = ThreadRunner()
    flow = Flow(mirror_config(_KEYS).flow("A", "B"), runner)
    try:
        with pytest.raises(ApiException, match=r"A: no broker answers at 127.0.0.1:1"):
            flow.prepare()
    finally:
        flow.close(clean=False)
        runner.close()
