"""DescribeClientQuotas (key 48), versions 0-1.

The quotas of the entities that a filter matches (KIP-546).

1  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.base import Api, RequestContext, Right
from ottla.broker.services import Node
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import DescribeClientQuotasResponse

if TYPE_CHECKING:
    from ottla.metadata.image import ClientQuotaEntity
    from ottla.wire.messages import DescribeClientQuotasRequest

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_IP: Final = "ip"
_TYPES: Final = (_IP, "user", "client-id")
_Response = DescribeClientQuotasResponse


class _Filter:
    """What the components of a request ask for. Raises ApiException for components that contradict."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        self._strict = request.strict
        self._names: dict[str, str | None] = {}
        """Entity types with the one name that matches; None is the default."""
        self._any: set[str] = set()
        """Entity types of which every name matches."""
        for component in request.components:
            self._add(component)
        asked = self._names.keys() | self._any
        if _IP in asked and len(asked) > 1:
            raise _invalid(
                "Invalid entity filter component combination. "
                "IP filter component should not be used with user or clientId filter component."
            )

    def _add(self, component: DescribeClientQuotasRequest.ComponentData) -> None:
        kind, match = component.entity_type, component.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in self._names or kind in self._any:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise ApiException(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type == _EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._names[kind] = match
        elif component.match_type in (_DEFAULT, _ANY):
            if match is not None:
                name = "MATCH_TYPE_DEFAULT" if component.match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
                raise _invalid(f"Request specified {name}, but also specified a match string.")
            if component.match_type == _DEFAULT:
                self._names[kind] = None
            else:
                self._any.add(kind)
        else:
            raise _invalid(f"Unknown match type {component.match_type}")

    def matches(self, entity: ClientQuotaEntity) -> bool:
        names = dict(entity)
        if self._strict and len(names) != len(self._names) + len(self._any):
            return False
        return self._any <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self._names.items()
        )


def _invalid(why: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_REQUEST, why)


def handle(node: Node, ctx: RequestContext, request: DescribeClientQuotasRequest) -> _Response:
    wanted = _Filter(request)
    return _Response(
        entries=[
            _Response.EntryData(
                entity=[_Response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[_Response.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in node.image.client_quotas.items()
            if wanted.matches(entity)
        ]
    )


def on_error(ctx: RequestContext, request: DescribeClientQuotasRequest, error: ApiException) -> _Response:
    return _Response(error_code=error.code, error_message=error.message, entries=None)


API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, handle, on_error, needs=(Right(AclOperation.DESCRIBE_CONFIGS),))
