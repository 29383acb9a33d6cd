"""Rights on topics that a request names, or gives by id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import allowed, refusal
from ottla.wire.enums import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.api.base import RequestContext
    from ottla.broker.services import Broker

NOT_AUTHORIZED: Final = refusal(ResourceType.TOPIC)


def denied_topics(
    broker: Broker, ctx: RequestContext, operation: AclOperation, topics: Iterable[str | bytes]
) -> set[str | bytes]:
    """Those of the topics that the client may not use. An id that is not known says nothing, and is not judged."""
    denied: set[str | bytes] = set()
    if broker.authorizer is None:
        return denied
    by_id = broker.image.topics.by_id
    for topic in dict.fromkeys(topics):
        name = topic
        if isinstance(name, bytes):
            found = by_id.get(name)
            if found is None:
                continue
            name = found.name
        if not allowed(broker, ctx, operation, ResourceType.TOPIC, name):
            denied.add(topic)
    return denied
