"""Elects the leader of several registries by Kafka's group protocol, type `sr`, as Confluent's and Karapace do.

A thread joins the group, and sends heartbeats. The group's own leader assigns the registry's leader.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.json_types import Json, JsonObject, as_int, as_object, as_text
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

_logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
_REBALANCE_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.25

R = TypeVar("R", bound="WireResponse")


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a registry answers, and whether it may lead."""

    host: str
    port: int
    scheme: str = "http"
    eligible: bool = True

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def document(self) -> JsonObject:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
        }

    @staticmethod
    def of(raw: Json) -> Identity:
        fields = as_object(raw, "an identity")
        eligible = fields.get("master_eligibility", fields.get("leader_eligibility", True))
        scheme = as_text(fields.get("scheme") or "http", "scheme")
        return Identity(
            as_text(fields["host"], "host"), as_int(fields["port"], "port"), scheme, bool(eligible)
        )


@dataclass(frozen=True, slots=True)
class Election:
    """An outcome: the leader, if there is one, and whether it is this registry."""

    generation: int
    leader: Identity | None
    mine: bool


class Elector:
    """The member of the group. `elected` is called from its thread, with None while the group rebalances."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        identity: Identity,
        session_timeout_ms: int,
        elected: Callable[[Election | None], None],
    ) -> None:
        self._cluster = cluster
        self._group = GroupId(group)
        self._identity = identity
        self._session_ms = session_timeout_ms
        self._elected = elected
        self._stopped = threading.Event()
        self._member = ""
        self._generation = -1
        self._last_leader: Identity | None = None
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)
        self.fresh_until = 0.0
        """Until then no other member can have been elected: the session lasts at least as long."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, so that another registry leads at once."""
        self._stopped.set()
        self._thread.join(10)

    def is_fresh(self) -> bool:
        return time.monotonic() < self.fresh_until

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._elected(self._join())
                self._beat()
            except ApiException as error:
                if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member = ""
                elif error.code == ErrorCode.ILLEGAL_GENERATION:
                    self._generation = -1
                if error.code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED):
                    _logger.info("The election in group %s begins again: %s", self._group, error)
                    self._cluster.forget_locations()
                    self._stopped.wait(_PAUSE_S)
                if error.code != ErrorCode.MEMBER_ID_REQUIRED:
                    self._elected(None)
        self.fresh_until = 0.0
        self._leave()
        self._cluster.close()

    def _ask(self, request: WireRequest[R]) -> R:
        connection = self._cluster.coordinator_connection(self._group, CoordinatorType.GROUP)
        return self._cluster.ask_on(connection, request)

    def _join(self) -> Election:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name=PROTOCOL, metadata=msgspec.json.encode(self._identity.document())
        )
        asked = time.monotonic()
        response = self._ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
                member_id=self._member,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol],
            )
        )
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = response.member_id
        raise_for(response.error_code, None, f"joining the group {self._group}")
        self._member, self._generation = response.member_id, response.generation_id
        assignments = []
        if response.leader == self._member:
            members = {one.member_id: bytes(one.metadata) for one in response.members}
            assignments = self._assign(members)
        asked = time.monotonic()
        sync = self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments,
            )
        )
        raise_for(sync.error_code, None, f"the assignment of group {self._group}")
        self.fresh_until = asked + self._session_ms / 1000
        return self._outcome(bytes(sync.assignment))

    def _outcome(self, assignment: bytes) -> Election:
        fields = as_object(msgspec.json.decode(assignment)) if assignment else {}
        found = fields.get("master_identity")
        leader = Identity.of(found) if found and not fields.get("error") else None
        self._last_leader = leader
        return Election(self._generation, leader, leader is not None and fields.get("master") == self._member)

    def _assign(self, members: dict[str, bytes]) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        chosen, error = choose(members, self._last_leader)
        identity = Identity.of(msgspec.json.decode(members[chosen])).document() if chosen else None
        assignment = msgspec.json.encode(
            {"version": 1, "error": error, "master": chosen, "master_identity": identity}
        )
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        return [kind(member_id=member, assignment=assignment) for member in members]

    def _beat(self) -> None:
        """Send heartbeats until the group asks to join again, or the registry stops."""
        while not self._stopped.wait(self._session_ms / 3000):
            asked = time.monotonic()
            response = self._ask(
                HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member)
            )
            raise_for(response.error_code, None, f"the heartbeat in group {self._group}")
            self.fresh_until = asked + self._session_ms / 1000

    def _leave(self) -> None:
        if not self._member:
            return
        member = LeaveGroupRequest.MemberIdentity(member_id=self._member, reason="the registry stops")
        try:
            self._ask(LeaveGroupRequest(group_id=self._group, members=[member]))
        except ApiException as error:
            _logger.info("Leaving the group %s failed: %s", self._group, error)


def choose(members: Mapping[str, bytes], incumbent: Identity | None) -> tuple[str | None, int]:
    """The member that leads, and Confluent's error number: the incumbent if it is there, else the first by address."""
    identities: dict[str, Identity] = {}
    for member, metadata in members.items():
        try:
            identities[member] = Identity.of(msgspec.json.decode(metadata))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            _logger.warning(
                "A member of the election sent an identity that is not readable: %r", metadata[:200]
            )
    if len({one.url for one in identities.values()}) < len(identities):
        _logger.warning("Two registries advertise the same address; give each its own with --advertised-host")
    eligible = sorted((one.host, one.port, member) for member, one in identities.items() if one.eligible)
    if not eligible:
        return None, 0
    for host, port, member in eligible:
        if incumbent is not None and (host, port) == (incumbent.host, incumbent.port):
            return member, 0
    return eligible[0][2], 0
