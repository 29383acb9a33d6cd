"""Every API declares the rights that the table of Kafka's APIs gives it: a forgotten check must not let anyone in."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.api.authorization import check
from ottla.api.base import BY_HANDLER, NOTHING, Api
from ottla.api.registry import supported
from ottla.errors import ApiException, ErrorCode
from ottla.security.authorizer import Authorizer
from ottla.security.grants import Grants
from ottla.wire import messages
from ottla.wire.apis import ApiKey

TABLE = [
    json.loads(line) for line in Path(__file__).with_name("authorization.jsonl").read_text().splitlines()
]
BY_KEY: dict[int, list[dict[str, Any]]] = {}
for row in TABLE:
    BY_KEY.setdefault(row["key"], []).append(row)

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
