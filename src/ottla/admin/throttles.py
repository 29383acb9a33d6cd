"""Throttles of reassignments: how fast brokers copy replicas that are new to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.admin.configs import alter_configs, ask_configs
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.partitions import Partition
    from ottla.admin.reassignments import Reassignment

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_RATES: Final = (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)


def throttle_moves(
    cluster: Cluster,
    ongoing: Mapping[Partition, Reassignment],
    wanted: Mapping[Partition, Sequence[int]],
    current: Mapping[Partition, Sequence[int]],
    rate: int,
) -> None:
    """Limit the traffic from current to new replicas, for all partitions that are moving or that are wanted to."""
    moves = {
        partition: (set(each.replicas) - set(each.adding), set(each.adding))
        for partition, each in ongoing.items()
    }
    for partition, brokers in wanted.items():
        sources = moves[partition][0] if partition in moves else set(current[partition])
        moves[partition] = sources, set(brokers) - sources
    for topic in sorted({topic for topic, _ in moves}):
        # Kafka sorts these as words, not as numbers.
        leaders, followers = (
            sorted(
                f"{number}:{broker}"
                for (each, number), sides in moves.items()
                if each == topic
                for broker in sides[side]
            )
            for side in (0, 1)
        )
        replicas = {_LEADER_REPLICAS: ",".join(leaders), _FOLLOWER_REPLICAS: ",".join(followers)}
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, added=replicas)
    for broker in sorted({broker for sides in moves.values() for side in sides for broker in side}):
        rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        alter_configs(cluster, ConfigResourceType.BROKER, str(broker), added=rates)


def lift_throttles(cluster: Cluster, brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Take the limits of brokers and topics away."""
    for broker in brokers:
        alter_configs(cluster, ConfigResourceType.BROKER, str(broker), deleted=_RATES)
    for topic in topics:
        replicas = (_LEADER_REPLICAS, _FOLLOWER_REPLICAS)
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, deleted=replicas)


def broker_throttles(cluster: Cluster, brokers: Iterable[int]) -> dict[int, int]:
    """The lowest rate at which a broker copies replicas that are new, of the brokers that have one."""
    found: dict[int, int] = {}
    for broker in brokers:
        resource = ConfigResourceType.BROKER, str(broker)
        for _, response in ask_configs(cluster, {resource: (LEADER_RATE, FOLLOWER_RATE)}):
            rates = [
                int(each.value)
                for result in response.results
                for each in result.configs
                if each.value not in (None, "", str(2**63 - 1))
            ]
            if rates:
                found[broker] = min(rates)
    return found


def throttled_topics(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """The topics that have throttled replicas."""
    wanted = {(ConfigResourceType.TOPIC, name): (_LEADER_REPLICAS, _FOLLOWER_REPLICAS) for name in topics}
    return sorted(
        {
            result.resource_name
            for _, response in ask_configs(cluster, wanted)
            for result in response.results
            if any(each.value for each in result.configs)
        }
        if wanted
        else ()
    )
