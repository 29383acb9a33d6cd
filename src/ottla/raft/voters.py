"""The set of voters: their ids and directories, their addresses, and the size of a majority."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from ottla.config.listeners import Voter
from ottla.ids import BrokerId
from ottla.raft.types import ReplicaKey
from ottla.wire import messages


class KRaftVersions(NamedTuple):
    """The levels of kraft.version that a voter supports."""

    min: int
    max: int


SUPPORTED_KRAFT_VERSIONS: Final = KRaftVersions(0, 1)


class VoterEndpoint(NamedTuple):
    """The address of a voter's controller listener."""

    host: str
    port: int


class VoterNode(msgspec.Struct, frozen=True):
    """A voter."""

    key: ReplicaKey
    listeners: Mapping[str, VoterEndpoint] = msgspec.field(default_factory=dict)
    """By listener name."""
    kraft_versions: KRaftVersions = SUPPORTED_KRAFT_VERSIONS


class VoterSet(msgspec.Struct, frozen=True):
    """All voters by node id."""

    nodes: Mapping[BrokerId, VoterNode] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, voters: Iterable[VoterNode]) -> VoterSet:
        return cls({v.key.id: v for v in voters})

    @classmethod
    def from_config(cls, voters: Iterable[Voter], listener: str) -> VoterSet:
        """From `controller.quorum.voters`, reached by this listener. Their directories are not known."""
        return cls.of(
            VoterNode(
                ReplicaKey(BrokerId(v.id)), {listener: VoterEndpoint(v.host, v.port)}, KRaftVersions(0, 0)
            )
            for v in voters
        )

    @classmethod
    def from_record(cls, record: messages.VotersRecord) -> VoterSet:
        """From a VotersRecord of the log or of a snapshot."""
        return cls.of(
            VoterNode(
                ReplicaKey(v.voter_id, v.voter_directory_id),
                {e.name: VoterEndpoint(e.host, e.port) for e in v.endpoints},
                KRaftVersions(
                    v.kraft_version_feature.min_supported_version,
                    v.kraft_version_feature.max_supported_version,
                ),
            )
            for v in record.voters
        )

    def to_record(self) -> messages.VotersRecord:
        cls = messages.VotersRecord
        return cls(
            version=0,
            voters=[
                cls.Voter(
                    voter_id=node.key.id,
                    voter_directory_id=node.key.directory_id,
                    endpoints=[
                        cls.Endpoint(name=name, host=e.host, port=e.port)
                        for name, e in node.listeners.items()
                    ],
                    kraft_version_feature=cls.KRaftVersionFeature(
                        min_supported_version=node.kraft_versions.min,
                        max_supported_version=node.kraft_versions.max,
                    ),
                )
                for node in self.nodes.values()
            ],
        )

    @property
    def ids(self) -> frozenset[BrokerId]:
        return frozenset(self.nodes)

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def is_voter(self, key: ReplicaKey) -> bool:
        node = self.nodes.get(key.id)
        return node is not None and node.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.nodes) == 1 and self.is_voter(key)

    def with_voter(self, node: VoterNode) -> VoterSet:
        """The set with this voter instead of the one with the same id."""
        return VoterSet({**self.nodes, node.key.id: node})

    def without_voter(self, key: ReplicaKey) -> VoterSet:
        """The set without this voter, if it has it."""
        return VoterSet({i: node for i, node in self.nodes.items() if node.key != key})

    def needs_update(self, node: VoterNode) -> bool:
        """The voter is in the set, but with other listeners or versions than it has now."""
        known = self.nodes.get(node.key.id)
        return known is not None and known.key == node.key and known != node
