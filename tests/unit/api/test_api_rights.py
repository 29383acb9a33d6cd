"""Every API declares the rights that the table of Kafka's APIs gives it: a forgotten check must not let anyone in."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.api.authorization import allowed, check
from ottla.api.base import BY_HANDLER, NOTHING, Api
from ottla.api.data import produce
from ottla.api.data.topic_rights import denied_topics
from ottla.api.registry import supported
from ottla.counters import RequestCounters
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import AclEntry
from ottla.net.request import Request
from ottla.security.authorizer import Authorizer
from ottla.security.grants import Grants
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

TABLE = [
    json.loads(line) for line in Path(__file__).with_name("authorization.jsonl").read_text().splitlines()
]
BY_KEY: dict[int, list[dict[str, Any]]] = {}
for row in TABLE:
    BY_KEY.setdefault(row["key"], []).append(row)

MAY_WRITE = AclEntry(
    ResourceType.TOPIC,
    "t",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.WRITE,
    AclPermissionType.ALLOW,
)
TOPIC_T = SimpleNamespace(name="t")
FIELDS = {"GROUP": "group_id", "TRANSACTIONAL_ID": "transactional_id"}


def row_of(key: int, *, controller: bool) -> dict[str, Any]:
    rows = BY_KEY[key]
    if len(rows) == 1:
        return rows[0]
    return next(row for row in rows if (row["answered_by"] == "controller") == controller)


def expected(row: dict[str, Any]) -> object:
    """What the declaration has to be; handlers check what depends on more than a field of the request."""
    if row["level"] == "none" and not row["checks"]:
        return NOTHING
    checks = row["checks"]
    if row["level"] != "request" or any(each.get("when") for each in checks) or not checks:
        return BY_HANDLER
    return tuple((each["operation"], each["resource"], FIELDS.get(each["resource"])) for each in checks)


@pytest.mark.parametrize("controller", [False, True])
def test_every_declaration_is_that_of_the_table(controller: bool) -> None:
    wrong = []
    for key, api in supported(on_controller_listener=controller).items():
        declared: object = api.needs
        if isinstance(api.needs, tuple):
            declared = tuple((right.operation.name, right.kind.name, right.field) for right in api.needs)
        wanted = expected(row_of(key, controller=controller))
        # A handler may check more than the table asks of the dispatcher, never less.
        if declared != wanted and declared is not BY_HANDLER:
            wrong.append(f"{ApiKey(key).name}: {declared}, expected {wanted}")
    assert wrong == []


def test_an_api_without_a_declaration_is_refused_while_there_is_an_authorizer() -> None:
    def handle(node: object, ctx: object, request: object) -> messages.ApiVersionsResponse:
        raise AssertionError("the handler must not be reached")

    forgotten: Api[Any, Any, Any] = Api(ApiKey.API_VERSIONS, handle)
    authorizer = Authorizer("User:admin", allow_everyone_if_no_acl_found=True)
    authorizer.complete_loading()
    node: Any = SimpleNamespace(authorizer=authorizer)
    ctx: Any = SimpleNamespace(grants=Grants("User:admin", "10.0.0.1"), api_key=18)
    with pytest.raises(ApiException) as refused:
        check(node, forgotten, ctx, messages.ApiVersionsRequest())
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    node.authorizer = None
    check(node, forgotten, ctx, messages.ApiVersionsRequest())


@pytest.mark.parametrize("controller", [False, True])
def test_the_apis_that_quotas_do_not_count_for_are_those_of_the_table(controller: bool) -> None:
    for key, api in supported(on_controller_listener=controller).items():
        exempt = row_of(key, controller=controller)["quota"] in ("exempt", "none of its own")
        assert api.throttled is not exempt, ApiKey(key).name


def session_that_may_write() -> tuple[Any, Any]:
    authorizer = Authorizer("User:admin", allow_everyone_if_no_acl_found=False)
    authorizer.update({b"1": MAY_WRITE})
    authorizer.complete_loading()
    node = SimpleNamespace(
        authorizer=authorizer, image=SimpleNamespace(topics=SimpleNamespace(by_id={bytes(16): TOPIC_T}))
    )
    return node, request_of("User:alice")


def request_of(principal: str) -> Request:
    """A Produce request on a connection of its own."""
    grants = Grants(principal, "10.0.0.1")
    connection: Any = SimpleNamespace(known_grants=grants, grants=grants, client=None)
    return Request(connection, produce.API, 13, 7, None, 0.0, RequestCounters(ApiKey.PRODUCE))


def test_a_right_that_was_found_before_ends_with_the_acls_that_gave_it() -> None:
    write, topic = AclOperation.WRITE, ResourceType.TOPIC
    node, ctx = session_that_may_write()
    for _ in range(2):
        assert allowed(node, ctx, write, topic, "t")
    node.authorizer.update({})
    assert not allowed(node, ctx, write, topic, "t")
    node.authorizer.update({b"1": MAY_WRITE})
    assert allowed(node, ctx, write, topic, "t")


def test_rights_on_topics_that_were_found_before_end_with_their_acls() -> None:
    write = AclOperation.WRITE
    node, ctx = session_that_may_write()
    for _ in range(2):
        assert denied_topics(node, ctx, write, ["t", "u", bytes(16)]) == {"u"}
    known = ctx.known_topics(node.authorizer.generation)
    assert known["t"] == known[bytes(16)] and known["t"] >> write & 1 and not known["u"]
    node.authorizer.update({})
    assert not ctx.known_topics(node.authorizer.generation)
    assert denied_topics(node, ctx, write, ["t", bytes(16)]) == {"t", bytes(16)}
    node.authorizer.update({b"1": MAY_WRITE})
    assert denied_topics(node, ctx, write, ["t"]) == set()


def test_what_super_users_may_do_is_known_the_second_time_and_nobody_else_gains_from_it() -> None:
    node, ctx = session_that_may_write()
    admin = request_of("User:admin")
    for _ in range(2):
        assert allowed(node, admin, AclOperation.DELETE, ResourceType.TOPIC, "u")
        assert not allowed(node, ctx, AclOperation.DELETE, ResourceType.TOPIC, "u")


def test_the_audit_log_gets_rights_that_were_found_before_once_it_asks_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, ctx = session_that_may_write()
    write, topic = AclOperation.WRITE, ResourceType.TOPIC
    assert allowed(node, ctx, write, topic, "t") and caplog.records == []
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        assert allowed(node, ctx, write, topic, "t")
        assert denied_topics(node, ctx, write, ["t"]) == set()
    assert len(caplog.records) == 2
    assert all("User:alice is Allowed operation = WRITE" in each.getMessage() for each in caplog.records)
