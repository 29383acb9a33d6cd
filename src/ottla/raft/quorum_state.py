"""The file `quorum-state`: the epoch, its leader and the vote in it. They must survive a crash.

Version 0 goes with kraft.version 0 (voters from the configuration), version 1 with kraft.version 1.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.log.fs import Fs
from ottla.raft.types import ReplicaKey
from ottla.wire.uuid import ZERO_UUID, uuid_from_str, uuid_to_str

FILE_NAME: Final = "quorum-state"
NOBODY: Final = -1


class ElectionState(msgspec.Struct, frozen=True):
    """An epoch, its leader if known, and the voter that this node voted for in it."""

    epoch: int = 0
    leader_id: BrokerId | None = None
    voted_key: ReplicaKey | None = None


def election_to_json(state: ElectionState, voters: frozenset[BrokerId], kraft_version: int) -> bytes:
    """The file's bytes, field for field as Kafka writes them."""
    leader_id = NOBODY if state.leader_id is None else state.leader_id
    voted_id = NOBODY if state.voted_key is None else state.voted_key.id
    document: dict[str, object]
    if kraft_version == 0:
        document = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in sorted(voters)],
            "data_version": 0,
        }
    else:
        voted_directory = ZERO_UUID if state.voted_key is None else state.voted_key.directory_id
        document = {
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_to_str(voted_directory),
            "data_version": 1,
        }
    return msgspec.json.encode(document)


def election_from_json(data: bytes) -> ElectionState:
    """The state in the file. Raises ApiException when the content is not valid."""
    try:
        document = msgspec.json.decode(data)
        if document["data_version"] not in (0, 1):
            raise ValueError(f"data_version {document['data_version']} is not known")
        leader_id, voted_id = BrokerId(int(document["leaderId"])), BrokerId(int(document["votedId"]))
        directory_id = uuid_from_str(document["votedDirectoryId"]) if document["data_version"] else ZERO_UUID
        return ElectionState(
            int(document["leaderEpoch"]),
            None if leader_id == NOBODY else leader_id,
            None if voted_id == NOBODY else ReplicaKey(voted_id, directory_id),
        )
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as e:
        raise ApiException(ErrorCode.KAFKA_STORAGE_ERROR, f"the quorum-state file cannot be read: {e}") from e


class QuorumStateStore:
    """Reads and durably replaces the file in the metadata log's directory."""

    __slots__ = ("_fs", "_path")

    def __init__(self, fs: Fs, directory: str) -> None:
        self._fs = fs
        self._path = f"{directory}/{FILE_NAME}"

    def read(self) -> ElectionState | None:
        if not self._fs.exists(self._path):
            return None
        return election_from_json(self._fs.read_bytes(self._path))

    def write(self, state: ElectionState, voters: frozenset[BrokerId], kraft_version: int) -> None:
        self._fs.write_atomic(self._path, election_to_json(state, voters, kraft_version))
