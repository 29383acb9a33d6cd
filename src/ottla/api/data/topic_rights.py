"""Rights on topics that a request names, or gives by id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import refusal
from ottla.security.grants import Action
from ottla.wire.enums import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.api.base import RequestContext
    from ottla.broker.services import Broker

_TOPIC: Final = ResourceType.TOPIC
NOT_AUTHORIZED: Final = refusal(_TOPIC)


def denied_topics(
    broker: Broker, ctx: RequestContext, operation: AclOperation, topics: Iterable[str | bytes]
) -> set[str | bytes]:
    """Those of the topics that the client may not use. An id that is not known says nothing, and is not judged."""
    denied: set[str | bytes] = set()
    authorizer = broker.authorizer
    if authorizer is None:
        return denied
    grants, by_id = ctx.grants, broker.image.topics.by_id
    known = ctx.known_topics(authorizer.generation)
    for topic in topics:
        if known.get(topic, 0) >> operation & 1 or topic in denied:
            continue
        name = topic
        if isinstance(name, bytes):
            found = by_id.get(name)
            if found is None:
                continue
            name = found.name
        if not authorizer.authorize(grants, Action(operation, _TOPIC, name), ctx.api_key):
            denied.add(topic)
        elif name is not topic:
            grants.keep(_TOPIC, topic, grants.topics[name])
    return denied
