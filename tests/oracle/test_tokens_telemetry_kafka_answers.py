"""A dialogue about delegation tokens and one about telemetry: Kafka's answers, field by field, in every version."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from oracle.kafka_tools import needs_java
from oracle.rights_dialogue import ADMIN, System, comparable, start_apache, start_ottla
from oracle.test_rights_kafka_answers import differences
from ottla.wire import messages as m

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_PATIENCE_S = 60.0
_MADE_UP = frozenset(
    {
        *(
            "token_id",
            "hmac",
            "issue_timestamp_ms",
            "expiry_timestamp_ms",
            "max_timestamp_ms",
            "issue_timestamp",
        ),
        *("expiry_timestamp", "max_timestamp", "client_instance_id", "subscription_id"),
    }
)
"""What each system chooses for itself: compared by whether it is there."""


@dataclass(frozen=True, slots=True)
class User:
    user: str


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, System]]:
    folder = tmp_path_factory.mktemp("dialogues")
    users = [User(name) for name in ("alice", "bob", "carol")]
    more = {"delegation.token.secret.key": "the-key-of-the-cluster"}
    apache = start_apache(folder / "apache", users, more)
    try:
        ottla = start_ottla(folder / "ottla", users, more)
        try:
            yield apache, ottla
        finally:
            ottla.stop()
    finally:
        apache.stop()


def masked(value: Any, field: str = "") -> Any:
    if field in _MADE_UP:
        return "something" if value and value != bytes(16) else "nothing"
    if isinstance(value, dict):
        return {key: masked(each, key) for key, each in value.items()}
    return [masked(each) for each in value] if isinstance(value, list) else value


class Dialogue:
    """One system's half. `said` has each answer, in a form to compare."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.said: list[Any] = []
        self._clients: dict[str, Any] = {}

    def ask(self, user: str, request: Any, version: int) -> Any:
        client = self._clients.setdefault(user, None) or self._system.log_in(user)
        self._clients[user] = client
        answer = client.ask(request, version)
        self.said.append(masked(comparable(answer, {})))
        return answer

    def tokens(self) -> int:
        """How many tokens the broker knows of."""
        client = self._clients.get(ADMIN) or self._system.log_in(ADMIN)
        self._clients[ADMIN] = client
        return len(client.ask(describe(everybody=True), 3).tokens)

    def until_tokens(self, count: int) -> None:
        """A broker hears of a token a moment after the controller has made it."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.tokens() != count:
            assert time.monotonic() < deadline, "the broker does not hear of its tokens"

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()


def principal(kind: Any, name: str) -> Any:
    return kind(principal_type="User", principal_name=name)


def create(*renewers: tuple[str, str], lifetime_ms: int = -1, owner: str | None = None) -> Any:
    kind = m.CreateDelegationTokenRequest
    wanted = [kind.CreatableRenewers(principal_type=each, principal_name=name) for each, name in renewers]
    request = kind(renewers=wanted, max_lifetime_ms=lifetime_ms)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    return request


def describe(*owners: str, everybody: bool = False) -> Any:
    kind = m.DescribeDelegationTokenRequest
    return kind(
        owners=None if everybody else [principal(kind.DescribeDelegationTokenOwner, each) for each in owners]
    )


def about_tokens(talk: Dialogue, version: int) -> None:
    """Versions differ in who may be an owner (3)."""
    older, before = min(version, 2), talk.tokens()
    made = talk.ask("alice", create(("User", "bob")), version)
    hmac = bytes(made.hmac)
    talk.ask("alice", create(("Group", "bob")), version)
    known = before + 1
    if version >= 3:
        talk.ask("alice", create(owner="carol"), version)
        talk.ask("admin", create(owner="carol"), version)
        talk.ask("alice", create(owner="alice"), version)
        known += 2
    talk.until_tokens(known)
    for user in ("alice", "bob", "carol"):
        talk.ask(user, describe(everybody=True), version)
        talk.ask(user, describe("alice"), version)
        talk.ask(user, describe("carol", "alice"), version)
    talk.ask("alice", describe(), version)
    for user, sent in (("bob", hmac), ("carol", hmac), ("bob", b"unknown"), ("alice", hmac)):
        for period in (-1, 100_000, -7):
            talk.ask(user, m.RenewDelegationTokenRequest(hmac=sent, renew_period_ms=period), older)
    for user, sent, period in (
        ("carol", hmac, -1),
        ("alice", b"unknown", -1),
        ("bob", hmac, 100_000),
        ("bob", hmac, -1),
    ):
        talk.ask(user, m.ExpireDelegationTokenRequest(hmac=sent, expiry_time_period_ms=period), older)
    talk.until_tokens(known - 1)
    talk.ask("alice", m.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), older)
    talk.ask("alice", describe("alice"), version)


def push(**fields: Any) -> Any:
    made = m.PushTelemetryRequest(
        client_instance_id=bytes(16), subscription_id=1, terminating=False, compression_type=0, metrics=b""
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def about_telemetry(talk: Dialogue, version: int) -> None:
    """Without a subscription: a client learns that nothing is wanted, and what it sends all the same is refused."""
    hello = talk.ask("alice", m.GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), version)
    own = hello.client_instance_id
    talk.ask("alice", m.GetTelemetrySubscriptionsRequest(client_instance_id=own), version)
    talk.ask("alice", push(), version)
    # What a client may do is forgotten with its connection.
    talk.close()
    deadline = time.monotonic() + _PATIENCE_S
    while talk.ask("alice", m.GetTelemetrySubscriptionsRequest(client_instance_id=own), version).error_code:
        # It has not heard yet that the connection is closed.
        talk.said.pop()
        assert time.monotonic() < deadline
    talk.ask("alice", push(client_instance_id=own, subscription_id=hello.subscription_id + 1), version)
    talk.ask(
        "alice",
        push(client_instance_id=own, subscription_id=hello.subscription_id, compression_type=9),
        version,
    )


@pytest.mark.parametrize(
    ("about", "version"), [(about_tokens, 1), (about_tokens, 2), (about_tokens, 3), (about_telemetry, 0)]
)
def test_answers_are_kafkas(systems: tuple[System, System], about: Any, version: int) -> None:
    apache, ottla = Dialogue(systems[0]), Dialogue(systems[1])
    for each in (apache, ottla):
        about(each, version)
        each.close()
    found = [
        f"answer {number}: {line}"
        for number, pair in enumerate(zip(apache.said, ottla.said, strict=True), 1)
        for line in differences(*pair)
    ]
    assert not found, "\n".join(found)
