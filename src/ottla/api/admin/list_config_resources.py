"""ListConfigResources (key 74), versions 0-1.

Lists the resources that can have dynamic configs.

0 was ListClientMetricsResources and lists only those; 1 adds the resource types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.base import Api, RequestContext, Right
from ottla.broker.services import Broker
from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ConfigResourceType
from ottla.wire.messages import ListConfigResourcesResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ListConfigResourcesRequest

_TYPES: Final = {
    0: (ConfigResourceType.CLIENT_METRICS,),
    1: (
        ConfigResourceType.GROUP,
        ConfigResourceType.CLIENT_METRICS,
        ConfigResourceType.BROKER_LOGGER,
        ConfigResourceType.BROKER,
        ConfigResourceType.TOPIC,
    ),
}
"""The resource types of each version, in the order of the response."""


def handle(
    broker: Broker, ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    supported = _TYPES[ctx.version]
    wanted = set(request.resource_types) or set(supported)
    if not wanted <= set(supported):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in supported
            if kind in wanted
            for name in _names(broker.image, kind)
        ]
    )


def _names(image: MetadataImage, kind: ConfigResourceType) -> list[str]:
    if kind is ConfigResourceType.TOPIC:
        return sorted(image.topics.by_name)
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(id_) for id_ in sorted(image.brokers) if not image.brokers[id_].fenced]
    return sorted(name for type_, name in image.configs.resources if type_ == kind)


API = Api(ApiKey.LIST_CONFIG_RESOURCES, handle, needs=(Right(AclOperation.DESCRIBE_CONFIGS),))
