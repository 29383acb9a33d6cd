"""Bad input of clients and nodes that are in: ACLs, envelopes, and an authorizer that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api.base import AnyApi, Right
from ottla.api.forwarding.local_requests import InnerRequest, serve
from ottla.api.registry import supported
from ottla.broker.services import Node
from ottla.errors import ErrorCode
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey
from ottla.wire.codec import encode
from ottla.wire.enums import AclOperation
from ottla.wire.headers import encode_request
from security.secured_node import ADMIN, SecuredNode

TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("bad-requests"))
    with made.broker:
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log


def creation(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return m.CreateAclsRequest.AclCreation(**(fields | changes))


@pytest.mark.slow
def test_acls_that_cannot_be(node: SecuredNode) -> None:
    """A principal without a colon is an error of its item; unknown numbers are one of the request, as in Kafka."""
    with node.log_in(ADMIN) as client:
        good, bad = client.ask(
            m.CreateAclsRequest(creations=[creation(), creation(principal="alice")]), 3
        ).results
        assert (good.error_code, bad.error_code) == (0, ErrorCode.INVALID_REQUEST)
        for unknown in (
            {"resource_type": 99},
            {"operation": 99},
            {"permission_type": 99},
            {"resource_pattern_type": 99},
        ):
            with node.log_in(ADMIN) as other:
                asked = m.CreateAclsRequest(creations=[creation(**unknown)])
                assert other.ask(asked, 3).results[0].error_code == ErrorCode.INVALID_REQUEST
        many = [creation(resource_name=f"t{number}") for number in range(10_001)]
        codes = {each.error_code for each in client.ask(m.CreateAclsRequest(creations=many), 3).results}
        assert codes == {ErrorCode.INVALID_REQUEST}


@pytest.mark.slow
def test_requests_with_more_items_than_one_may_have(tmp_path: Path) -> None:
    """Above 10,000 quotas, users or renewers: nothing is written."""
    quotas, users = m.AlterClientQuotasRequest, m.AlterUserScramCredentialsRequest
    entity = quotas.EntityData(entity_type="user", entity_name="alice")
    ops = [quotas.OpData(key="producer_byte_rate", value=1.0)] * 10_001
    renewer = m.CreateDelegationTokenRequest.CreatableRenewers(principal_type="User", principal_name="bob")
    deletions = [users.ScramCredentialDeletion(name=f"user{n}", mechanism=1) for n in range(10_001)]
    node = SecuredNode(tmp_path, {"delegation.token.secret.key": "the-key-of-this-node"})
    with node.broker, node.log_in(ADMIN) as client:
        entry = quotas.EntryData(entity=[entity], ops=ops)
        assert client.ask(quotas(entries=[entry]), 1).entries[0].error_code == ErrorCode.INVALID_REQUEST
        results = client.ask(users(deletions=deletions, upsertions=[]), 0).results
        assert {each.error_code for each in results} == {ErrorCode.INVALID_REQUEST}
        token = m.CreateDelegationTokenRequest(renewers=[renewer] * 10_001, max_lifetime_ms=-1)
        assert client.ask(token, 3).error_code == ErrorCode.INVALID_REQUEST
        asked = m.DescribeDelegationTokenRequest(owners=None)
        assert client.ask(asked, 3).tokens == []


def envelope(inner: Any, version: int, principal: bytes, host: bytes = b"\x7f\0\0\1") -> Any:
    frame = b"".join(encode_request(7, "raw", inner, version))[4:]
    return m.EnvelopeRequest(request_data=frame, request_principal=principal, client_host_address=host)


def principal_bytes(kind: str, name: str) -> bytes:
    return b"\0\0" + encode(m.DefaultPrincipalData(type=kind, name=name), 0)


@pytest.mark.slow
def test_envelopes_that_cannot_be(node: SecuredNode) -> None:
    """What is inside has the rights of the principal that the envelope names, and no envelope is in another."""
    alice = principal_bytes("User", "alice")
    topics = m.CreateTopicsRequest(topics=[])
    nested = envelope(topics, 7, alice)
    cases = [
        (envelope(nested, 0, alice), ErrorCode.INVALID_REQUEST),
        (envelope(m.MetadataRequest(), 12, alice), ErrorCode.INVALID_REQUEST),
        (envelope(topics, 7, b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(topics, 7, b"\0\7rest"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(topics, 7, alice, b"\1\2\3"), ErrorCode.INVALID_REQUEST),
        (envelope(topics, 7, alice), ErrorCode.NONE),
    ]
    with node.certified("CONTROLLER", "admin", node_id=1) as client:
        for asked, code in cases:
            assert client.ask(asked, 0).error_code == code
    with node.certified("CONTROLLER", "somebody") as client:
        assert client.ask(cases[-1][0], 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_authorizer_that_raises_denies(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*arguments: object) -> bool:
        raise RuntimeError("the authorizer is broken")

    api: AnyApi = supported(on_controller_listener=True)[ApiKey.UNREGISTER_BROKER]
    assert api.needs == (Right(AclOperation.ALTER),)
    broken = cast(Node, SimpleNamespace(authorizer=SimpleNamespace(authorize=fail, generation=0), audit=None))
    outer = cast(Any, SimpleNamespace(listener_name="C", local_host="", local_port=1, connection_id="c"))
    answers: list[Any] = []
    ctx = InnerRequest(answers.append, api_key=api.key, version=0, received_at=0.0, outer=outer)
    serve(broken, api, ctx, m.UnregisterBrokerRequest(broker_id=1))  # type: ignore[arg-type]
    assert answers[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "the authorizer is broken" in caplog.text
