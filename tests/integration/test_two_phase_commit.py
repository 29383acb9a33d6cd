"""InitProducerId 6: two-phase commit, which Kafka 4.3 offers only with versions that are still in development."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TransactionalId
from ottla.testing.apache import ApacheKafka, java_is_here
from ottla.testing.raw_client import RawClient, Resp
from ottla.testing.running import quick_broker
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireRequest

UNSTABLE = {"unstable.api.versions.enable": "true"}
TWO_PHASE = {**UNSTABLE, "transaction.two.phase.commit.enable": "true"}
SETTINGS = {"stable": {}, "unstable": UNSTABLE, "two-phase": TWO_PHASE}
VERSION = 6
FOREVER = 2**31 - 1
PATIENCE_S = 60.0

Address = tuple[str, int]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Address]]:
    root = tmp_path_factory.mktemp("two-phase")
    started = {name: quick_broker(root / name, own) for name, own in SETTINGS.items()}
    try:
        for broker in started.values():
            broker.launch()
        for broker in started.values():
            broker.wait_ready()
        yield {name: (broker.host, broker.port) for name, broker in started.items()}
    finally:
        for broker in started.values():
            broker.kill()


def newest(address: Address) -> int:
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(*address) as client:
        keys = client.ask(request, 3).api_keys
    return next(key.max_version for key in keys if key.api_key == ApiKey.INIT_PRODUCER_ID)


def ask(
    address: Address, name: str, request: WireRequest[Resp], version: int, code: Callable[[Resp], int]
) -> Resp:
    """Ask the coordinator of a transactional id, which may have to create its topic first."""
    find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    deadline = time.monotonic() + PATIENCE_S
    with RawClient(*address) as client:
        while time.monotonic() < deadline:
            if not client.ask(find, 4).coordinators[0].error_code:
                answer = client.ask(request, version)
                if not ErrorCode(code(answer)).retriable:
                    return answer
            threading.Event().wait(0.02)
    raise AssertionError(f"the coordinator of {name} was not there within {PATIENCE_S} s")


def init(address: Address, name: str, **more: bool) -> ErrorCode:
    request = m.InitProducerIdRequest(
        transactional_id=TransactionalId(name), transaction_timeout_ms=60_000, **more
    )
    return ErrorCode(ask(address, name, request, VERSION, lambda answer: answer.error_code).error_code)


def timeout_ms(address: Address, name: str) -> int:
    request = m.DescribeTransactionsRequest(transactional_ids=[TransactionalId(name)])
    answer = ask(address, name, request, 0, lambda answer: answer.transaction_states[0].error_code)
    return answer.transaction_states[0].transaction_timeout_ms


def test_version_6_is_offered_with_unstable_versions_only(brokers: dict[str, Address]) -> None:
    assert {name: newest(broker) for name, broker in brokers.items()} == {
        "stable": 5,
        "unstable": 6,
        "two-phase": 6,
    }


def test_a_broker_with_stable_versions_closes_the_connection(brokers: dict[str, Address]) -> None:
    with pytest.raises(ConnectionError):
        init(brokers["stable"], "payments")


def test_two_phase_commit_has_its_own_switch(brokers: dict[str, Address]) -> None:
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert init(brokers["unstable"], "payments", enable2_pc=True) is refused
    assert init(brokers["unstable"], "payments") is ErrorCode.NONE


def check_two_phase_commit(address: Address) -> None:
    assert init(address, "waits", enable2_pc=True) is ErrorCode.NONE
    assert timeout_ms(address, "waits") == FOREVER
    assert init(address, "waits", enable2_pc=False) is ErrorCode.NONE
    assert timeout_ms(address, "waits") == 60_000
    # Kafka 4.3 knows the field and refuses it.
    assert init(address, "waits", enable2_pc=True, keep_prepared_txn=True) is ErrorCode.UNSUPPORTED_VERSION
    assert init(address, "waits", keep_prepared_txn=True) is ErrorCode.UNSUPPORTED_VERSION


def test_a_two_phase_transaction_never_times_out(brokers: dict[str, Address]) -> None:
    check_two_phase_commit(brokers["two-phase"])


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.skipif(not java_is_here(), reason="needs a JVM and Maven to run Apache Kafka")
def test_apache_kafka_does_the_same(tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path / "kafka", TWO_PHASE)
    kafka.format()
    try:
        kafka.start()
        check_two_phase_commit(("127.0.0.1", kafka.port))
    finally:
        kafka.kill()
