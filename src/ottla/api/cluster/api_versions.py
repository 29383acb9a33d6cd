"""ApiVersions (key 18), versions 0-4.

Which APIs and features this broker serves.

1 adds the throttle time; 3 is flexible, has the client's name and version in the request and features in the response;
4 lists features whose lowest level is 0. An unknown version is answered in version 0 with
UNSUPPORTED_VERSION, so that the client can fall back.
"""

from __future__ import annotations

import re

from ottla.api.base import NOTHING, UNSTABLE_VERSIONS, Api, RequestContext
from ottla.broker.services import Node
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from ottla.metadata.image import ConfigurationsImage
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.enums import ConfigResourceType

_MAX_NAME = 100
_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Advertised while somebody wants clients' metrics: librdkafka logs a line for each client that is given an id."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    broker: Node, ctx: RequestContext, request: messages.ApiVersionsRequest
) -> messages.ApiVersionsResponse:
    # Imported here because the registry lists this module.
    from ottla.api.registry import supported

    if ctx.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise ApiException(
            ErrorCode.INVALID_REQUEST, "the client software name and version contain invalid characters"
        )
    if ctx.version >= 3:
        ctx.note_software(
            request.client_software_name[:_MAX_NAME], request.client_software_version[:_MAX_NAME]
        )
    apis = supported(on_controller_listener=ctx.on_controller_listener)
    image = broker.image
    response = messages.ApiVersionsResponse
    finalized = dict(image.features)
    if broker.raft.kraft_version > 0:
        finalized[KRAFT_VERSION] = broker.raft.kraft_version
    return response(
        api_keys=[
            response.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in apis.advertised(unstable=broker.config.bool(UNSTABLE_VERSIONS))
            if api.key not in _TELEMETRY or _has_subscriptions(image.configs)
        ],
        # Clients before version 4 cannot handle features whose lowest level is 0.
        supported_features=[
            response.SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
            for name, levels in SUPPORTED_FEATURES.items()
            if ctx.version >= 4 or levels.min > 0
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            response.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
        ],
        zk_migration_ready=False,
    )


_searched: tuple[ConfigurationsImage | None, bool] = (None, False)
"""The configurations that were searched last, since there can be thousands, and the result."""


def _has_subscriptions(configs: ConfigurationsImage) -> bool:
    global _searched
    if _searched[0] is not configs:
        found = any(kind == ConfigResourceType.CLIENT_METRICS for kind, _ in configs.resources)
        _searched = configs, found
    return _searched[1]


def on_error(
    ctx: RequestContext, request: messages.ApiVersionsRequest | None, error: ApiException
) -> messages.ApiVersionsResponse:
    """`request` is None if its version is not known, since it cannot be read then."""
    response = messages.ApiVersionsResponse(error_code=error.code)
    if error.code is ErrorCode.UNSUPPORTED_VERSION:
        known = API.versions
        response.api_keys = [
            response.ApiVersion(api_key=API.key, min_version=known[0], max_version=known[-1])
        ]
    return response


API = Api(ApiKey.API_VERSIONS, handle, on_error, needs=NOTHING)
