"""A broker's coordinators, put together from the broker's other services."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.api.coordinators import Made
from ottla.api.groups.coordinator import make_group_coordinator
from ottla.api.share.services import make_share_services
from ottla.api.topics.auto_create import auto_create_topics
from ottla.api.transactions.coordinator import make_transaction_coordinator
from ottla.controller.names import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from ottla.api.broker import Broker


def make_coordinators(broker: Broker, loop: asyncio.AbstractEventLoop) -> Made:
    """Ready to follow the metadata."""
    config, replicas, clock, executor = broker.config, broker.replicas, broker.clock, broker.executor
    post = loop.call_soon_threadsafe
    groups = make_group_coordinator(config, replicas, clock, executor, post)
    return Made(
        groups=groups,
        share=make_share_services(
            config,
            replicas,
            clock,
            executor,
            post,
            groups,
            lambda: auto_create_topics(broker, [SHARE_STATE_TOPIC]),
            broker.peers,
        ),
        transactions=make_transaction_coordinator(
            config, replicas, clock, executor, post, broker.producer_ids, broker.local_markers, broker.peers
        ),
    )
