"""The group of a Connect cluster: Kafka's classic protocol with the type `connect`, as a machine without I/O.

    UNJOINED ─join─▶ JOINING ─▶ SYNCING ─▶ STABLE ─(rebalance, or new connectors at the leader)─▶ JOINING
        ▲                                     │
        └──────── unknown member, old generation, lost coordinator ──┘

Java's workers speak other protocols under the same type: a broker never has both in one group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from ottla.connect.assign import assign

PROTOCOL_TYPE: Final = "connect"
PROTOCOL: Final = "ottla"


class _Said(TypedDict, total=False):
    """What members say of themselves (`url`, `connectors`), and what the leader says to them."""

    url: str
    connectors: list[str]
    leader: str
    leader_url: str
    owners: dict[str, str]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member learns in a generation: who leads, and who runs which connector."""

    generation: int = -1
    member_id: str = ""
    leader_id: str = ""
    leader_url: str = ""
    connectors: frozenset[str] = frozenset()
    owners: Mapping[str, str] = field(default_factory=dict)
    """The address of each connector's owner."""

    @property
    def leads(self) -> bool:
        """Whether this member leads."""
        return self.generation >= 0 and self.member_id == self.leader_id


def encode_metadata(url: str, connectors: frozenset[str]) -> bytes:
    """What a member says of itself: its address, and what it runs."""
    return json.dumps({"url": url, "connectors": sorted(connectors)}).encode()


def encode_assignments(
    members: Mapping[str, bytes], leader_id: str, connectors: list[str]
) -> dict[str, bytes]:
    """The leader's decision: the assignment of each member, from what members say of themselves."""
    described = {member: _parsed(data) for member, data in members.items()}
    before: dict[str, str] = {}
    for member, one in described.items():
        for connector in one.get("connectors", ()):
            before.setdefault(connector, member)
    given = assign(members, connectors, before)
    urls = {member: str(one.get("url", "")) for member, one in described.items()}
    owners = {connector: urls[member] for member, held in given.items() for connector in held}
    return {
        member: json.dumps(
            {"leader": leader_id, "leader_url": urls[leader_id], "connectors": held, "owners": owners}
        ).encode()
        for member, held in given.items()
    }


def decode_assignment(generation: int, member_id: str, data: bytes) -> Assignment:
    """The assignment of a member; an empty one if the leader had none for it."""
    found = _parsed(data)
    return Assignment(
        generation,
        member_id,
        str(found.get("leader", "")),
        str(found.get("leader_url", "")),
        frozenset(found.get("connectors", ())),
        dict(found.get("owners", {})),
    )


def _parsed(data: bytes) -> _Said:
    try:
        found: _Said = json.loads(data) if data else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
