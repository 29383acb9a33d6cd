"""A worker as a member of its group: joins, syncs and sends heartbeats, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.settings import ClusterSettings
from ottla.connect.failures import ConnectError
from ottla.connect.group import (
    PROTOCOL,
    PROTOCOL_TYPE,
    Assignment,
    decode_assignment,
    encode_assignments,
    encode_metadata,
)
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

_logger = logging.getLogger(__name__)

_JOIN_VERSION: Final = 5
_PAUSE_S: Final = 0.5
_REJOIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})
_FORGOTTEN: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)


class GroupMember:
    """Keeps one membership. `on_assignment` hears of each new generation."""

    def __init__(
        self,
        settings: ClusterSettings,
        group_id: str,
        url: str,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_ms: int,
        connectors: Callable[[], list[str]],
        on_assignment: Callable[[Assignment], None],
    ) -> None:
        self._brokers = Cluster(settings)
        self._group = GroupId(group_id)
        self._url = url
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_s = heartbeat_ms / 1000
        self._connectors = connectors
        self._on_assignment = on_assignment
        self._member_id = ""
        self._assignment = Assignment()
        self._wake = threading.Event()
        self._ended = False
        self._rejoin = False
        self.refused: ConnectError | None = None
        self._thread = threading.Thread(target=self._main, name="group-member", daemon=True)

    @property
    def assignment(self) -> Assignment:
        """The current generation's."""
        return self._assignment

    def start(self) -> None:
        """Joins the group."""
        self._thread.start()

    def rejoin(self) -> None:
        """Asks for a new generation: there are other connectors than before."""
        self._rejoin = True
        self._wake.set()

    def stop(self) -> None:
        """Leaves the group."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        try:
            if self._member_id:
                kind = LeaveGroupRequest
                member = kind.MemberIdentity(member_id=self._member_id, reason="the worker stops")
                self._brokers.ask_on(
                    self._brokers.coordinator_connection(self._group, CoordinatorType.GROUP),
                    kind(group_id=self._group, members=[member]),
                    4,
                )
        except ApiException as error:
            _logger.debug("leaving the group: %s", error)
        self._brokers.close()

    def _main(self) -> None:
        while not self._ended:
            try:
                if self._assignment.generation < 0 or self._rejoin:
                    self._rejoin = False
                    self._join()
                self._wake.wait(self._heartbeat_s)
                self._wake.clear()
                if not self._ended and not self._rejoin:
                    self._heartbeat()
            except ApiException as error:
                self._failed(error)

    def _failed(self, error: ApiException) -> None:
        if error.code in _REJOIN:
            self._rejoin = True
            return
        if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self.refused = ConnectError(
                f"group {self._group} is in use by members of another kind, for example Java workers: stop them first, "
                "or give this worker another group.id"
            )
            _logger.error("%s", self.refused)
        elif error.code in _FORGOTTEN:
            _logger.warning("the group %s has forgotten this worker: joining again", self._group)
            self._member_id = ""
        else:
            _logger.warning("the group %s cannot be reached: %s", self._group, error)
        self._brokers.forget_locations()
        self._set(Assignment())
        time.sleep(_PAUSE_S)

    def _join(self) -> None:
        kind = JoinGroupRequest
        protocol = kind.JoinGroupRequestProtocol(
            name=PROTOCOL, metadata=encode_metadata(self._url, self._assignment.connectors)
        )
        while True:
            response = self._brokers.ask_on(
                self._brokers.coordinator_connection(self._group, CoordinatorType.GROUP),
                kind(
                    group_id=self._group,
                    session_timeout_ms=self._session_timeout_ms,
                    rebalance_timeout_ms=self._rebalance_timeout_ms,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[protocol],
                ),
                _JOIN_VERSION,
            )
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                continue
            raise_for(response.error_code, None, f"joining group {self._group}")
            break
        self._member_id = response.member_id
        assignments: dict[str, bytes] = {}
        if response.leader == response.member_id:
            members = {one.member_id: bytes(one.metadata) for one in response.members}
            assignments = encode_assignments(members, response.member_id, self._connectors())
        sync = SyncGroupRequest
        synced = self._brokers.ask_on(
            self._brokers.coordinator_connection(self._group, CoordinatorType.GROUP),
            sync(
                group_id=self._group,
                generation_id=response.generation_id,
                member_id=self._member_id,
                assignments=[
                    sync.SyncGroupRequestAssignment(member_id=member, assignment=data)
                    for member, data in assignments.items()
                ],
            ),
            3,
        )
        raise_for(synced.error_code, None, f"syncing group {self._group}")
        self.refused = None
        self._set(decode_assignment(response.generation_id, self._member_id, bytes(synced.assignment)))

    def _heartbeat(self) -> None:
        response = self._brokers.ask_on(
            self._brokers.coordinator_connection(self._group, CoordinatorType.GROUP),
            HeartbeatRequest(
                group_id=self._group,
                generation_id=self._assignment.generation,
                member_id=self._member_id,
            ),
            3,
        )
        raise_for(response.error_code, None, f"heartbeat to group {self._group}")

    def _set(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._on_assignment(assignment)
