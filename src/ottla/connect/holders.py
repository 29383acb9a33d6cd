"""Whether another cluster of workers writes the config topic: two clusters would take each other's connectors."""

from __future__ import annotations

import logging
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.connection import ConnectionFailed
from ottla.admin.groups import describe_classic_groups
from ottla.admin.transactions import describe_producers
from ottla.connect.failures import ConnectError
from ottla.errors import ApiException
from ottla.wire.messages import ListTransactionsRequest

_logger = logging.getLogger(__name__)

LEADER: Final = "connect-cluster-"
"""What a leader's transactional id begins with; the group of its cluster follows."""


def refuse_a_second_cluster(brokers: Cluster, topic: str, group: str) -> None:
    """ConnectError if a leader of another group wrote into the topic, and that group has members."""
    try:
        held = _groups_that_wrote(brokers, topic) - {group}
        by_node = brokers.coordinators(sorted(held)) if held else {}
        found = [
            one
            for node, names in by_node.items()
            for one in describe_classic_groups(brokers, node, names).groups
        ]
    except ApiException as error:
        # Without the rights to look, the start must not fail.
        _logger.debug("who writes the topic %s is not known: %s", topic, error)
        return
    for one in found:
        if one.members:
            at = ", ".join(sorted({member.client_host.lstrip("/") for member in one.members}))
            raise ConnectError(
                f"the topic {topic} belongs to the Connect cluster {one.group_id}, which has workers at {at}: give "
                f"this worker group.id={one.group_id} to join it, or a config.storage.topic of its own"
            )


def _groups_that_wrote(brokers: Cluster, topic: str) -> set[str]:
    known = describe_producers(brokers, [(topic, 0)]).get((topic, 0), [])
    ids = [one.producer_id for one in known]
    if not ids:
        return set()
    request = ListTransactionsRequest(producer_id_filters=ids)
    found: set[str] = set()
    for node in brokers.nodes():
        try:
            listed = brokers.ask(request, node).transaction_states
        except ConnectionFailed as error:
            # A broker that has just died must not delay the start.
            _logger.debug("broker %s does not say who writes: %s", node, error)
            continue
        found |= {str(one.transactional_id) for one in listed}
    return {one.removeprefix(LEADER) for one in found if one.startswith(LEADER)}
