"""Watches the simulated network: votes, and acknowledgements of records.

It checks that no voter votes twice in one epoch, and lets faults strike at such moments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from ottla.testing.sim.network import FIRST_CLIENT_PORT, Transport
from ottla.wire import messages
from ottla.wire.codec import decode
from ottla.wire.headers import decode_request_header, decode_response_header

_PRODUCE: Final = messages.ProduceRequest.API_KEY
_VOTE: Final = messages.VoteRequest.API_KEY

_read_size: Final[Callable[[bytes, int], tuple[int]]] = struct.Struct(">i").unpack_from

_Asked = tuple[int, int, messages.VoteRequest | None]


class Watch:
    """`sent` is called with everything that a process sends, before the network carries it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._partial: dict[Transport, int] = {}
        """Missing bytes of an incomplete frame."""
        self._asked: dict[Transport, dict[int, _Asked]] = {}
        """Watched requests by the end that must respond."""
        self._votes: dict[tuple[str, int], int] = {}
        self.on_vote: Callable[[str, str], None] | None = None
        """Called with the host of a voter that is about to send its vote, and the candidate."""
        self.on_acknowledge: Callable[[str], None] | None = None
        """Called with the host of a broker that is about to acknowledge records."""

    def wiped(self, host: str) -> None:
        """Forget the votes of a host with a new disk: it is another voter now."""
        self._votes = {key: vote for key, vote in self._votes.items() if key[0] != host}

    def sent(self, sender: Transport, data: bytes | None) -> None:
        if data is None:
            self._partial.pop(sender, None)
            self._asked.pop(sender, None)
            return
        at = self._partial.get(sender, 0)
        while at < len(data):
            if len(data) - at >= 12 or sender in self._asked:
                self._frame(sender, data[at:])
            at += 4 + _read_size(data, at)[0]
        self._partial[sender] = at - len(data)

    def _frame(self, sender: Transport, frame: bytes) -> None:
        if sender.local[1] >= FIRST_CLIENT_PORT:
            size, key, version, correlation_id = struct.unpack_from(">ihhi", frame)
            if key in (_PRODUCE, _VOTE):
                asked: messages.VoteRequest | None = None
                if key == _VOTE:
                    _, offset = decode_request_header(frame[4 : 4 + size])
                    asked = decode(messages.VoteRequest, version, frame[4 + offset : 4 + size])
                    self._stands(sender.local[0], asked)
                self._asked.setdefault(sender.peer, {})[correlation_id] = (key, version, asked)
        elif (pending := self._asked.get(sender)) is not None:
            size, correlation_id = struct.unpack_from(">ii", frame)
            found = pending.pop(correlation_id, None)
            if found is not None:
                self._answered(sender, frame[4 : 4 + size], *found)

    def _stands(self, host: str, request: messages.VoteRequest) -> None:
        for topic in request.topics:
            for asked in topic.partitions:
                if not asked.pre_vote:
                    self._vote(host, asked.replica_epoch, asked.replica_id)

    def _answered(
        self, sender: Transport, frame: bytes, key: int, version: int, request: messages.VoteRequest | None
    ) -> None:
        host = sender.local[0]
        if request is None:
            if self.on_acknowledge is not None:
                self.on_acknowledge(host)
            return
        _, offset = decode_response_header(key, version, frame)
        answer = decode(messages.VoteResponse, version, frame[offset:])
        asked = request.topics[0].partitions[0]
        granted = bool(answer.topics) and answer.topics[0].partitions[0].vote_granted
        if granted and not asked.pre_vote:
            self._vote(host, asked.replica_epoch, asked.replica_id)
            if self.on_vote is not None:
                self.on_vote(host, sender.remote[0])

    def _vote(self, voter: str, epoch: int, candidate: int) -> None:
        before = self._votes.setdefault((voter, epoch), candidate)
        if before != candidate:
            self._say(f"{voter} voted for {before} and for {candidate} in epoch {epoch}")
