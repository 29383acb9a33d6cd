"""Runs a dialogue between raft nodes: commands in, and what every node then wants done, line by line, out.

start 1,2,3                 the nodes, which are the voters
tick NODE MS                move the clock and tick one node
deliver [FROM TO]           deliver the messages under way (or those of one pair), and those they lead to
drop FROM TO                lose the messages under way between two nodes
append NODE COUNT           the leader appends records; they are not durable yet
flush NODE                  the node's log is durable
fetch NODE BY               a follower has fetched everything of the leader's log
found NODE LEADER EPOCH     the node hears who leads
heard NODE                  the node's leader answers a fetch
gone NODE                   nobody listens where the node's leader was
refuse FROM TO              nobody listens there: votes under way from one to the other come back as such
resign NODE                 the leader steps down
restart NODE                the node starts again from what it persisted
"""

from __future__ import annotations

import random
from typing import Any

from ottla.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetched,
    LeaderFound,
    LeaderGone,
    LeaderResponded,
    LogAppended,
    LogFlushed,
    Outgoing,
    Resign,
    VoteRequest,
    VoterGone,
)
from ottla.raft.node import NodeConfig, RaftNode
from ottla.raft.quorum_state import ElectionState
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterNode, VoterSet


class Dialogue:
    def __init__(self) -> None:
        self.nodes: dict[int, RaftNode] = {}
        self.persisted: dict[int, ElectionState | None] = {}
        self.ends: dict[int, OffsetAndEpoch] = {}
        self.under_way: list[Outgoing] = []
        self.now_ms = 0
        self.out: list[str] = []

    def run(self, line: str) -> list[str]:
        self.out = []
        command, *args = line.split()
        getattr(self, command)(*args)
        return self.out or ["nothing"]

    def start(self, voters: str) -> None:
        ids = [int(v) for v in voters.split(",")]
        self.voters = VoterSet.of(VoterNode(ReplicaKey(i)) for i in ids)
        for i in ids:
            self.persisted[i], self.ends[i] = None, OffsetAndEpoch(0, 0)
        for i in ids:
            self.restart(str(i))

    def restart(self, node: str) -> None:
        i = int(node)
        self.nodes[i] = RaftNode(
            self.voters.nodes[i],
            voters=self.voters,
            voters_offset=None,
            kraft_version=0,
            election=self.persisted[i],
            log_end=self.ends[i],
            rng=random.Random(i),
            config=NodeConfig(election_timeout_ms=1000, fetch_timeout_ms=2000),
        )
        self.nodes[i].start(self.now_ms)
        self._show(i)

    def tick(self, node: str, ms: str) -> None:
        self.now_ms += int(ms)
        self.nodes[int(node)].tick(self.now_ms)
        self._show(int(node))

    def deliver(self, sender: str = "", receiver: str = "") -> None:
        while chosen := [m for m in self.under_way if self._between(m, sender, receiver)]:
            self.under_way = [m for m in self.under_way if m not in chosen]
            for message in chosen:
                self._step(message.receiver.id, message)
            if sender:
                return

    def drop(self, sender: str, receiver: str) -> None:
        self.under_way = [m for m in self.under_way if not self._between(m, sender, receiver)]

    def append(self, node: str, count: str) -> None:
        i = int(node)
        self.ends[i] = OffsetAndEpoch(self.ends[i].offset + int(count), self.nodes[i].epoch)
        self._step(i, LogAppended(self.ends[i]))

    def flush(self, node: str) -> None:
        self._step(int(node), LogFlushed(self.ends[int(node)].offset))

    def fetch(self, node: str, by: str) -> None:
        self.ends[int(by)] = self.ends[int(node)]
        self._step(int(by), LogAppended(self.ends[int(by)]))
        self._step(int(node), Fetched(ReplicaKey(int(by)), self.ends[int(by)].offset))

    def found(self, node: str, leader: str, epoch: str) -> None:
        self._step(int(node), LeaderFound(int(leader), int(epoch)))

    def heard(self, node: str) -> None:
        self._step(int(node), LeaderResponded())

    def gone(self, node: str) -> None:
        self._step(int(node), LeaderGone())

    def refuse(self, sender: str, receiver: str) -> None:
        asked = [m for m in self.under_way if self._between(m, sender, receiver)]
        self.drop(sender, receiver)
        for message in asked:
            if isinstance(message, VoteRequest):
                self._step(int(sender), VoterGone(message))

    def resign(self, node: str) -> None:
        self._step(int(node), Resign())

    def _step(self, node: int, message: Any) -> None:
        self.nodes[node].step(message)
        self._show(node)

    @staticmethod
    def _between(message: Outgoing, sender: str, receiver: str) -> bool:
        return not sender or (message.sender.id, message.receiver.id) == (int(sender), int(receiver))

    def _show(self, i: int) -> None:
        node = self.nodes[i]
        while ready := node.ready():
            self.out.append(f"{i} is {node.state.value} in epoch {node.epoch}")
            if ready.election is not None:
                self.persisted[i] = ready.election
                voted = "nobody" if ready.election.voted_key is None else ready.election.voted_key.id
                self.out.append(
                    f"  persist epoch {ready.election.epoch}, leader {ready.election.leader_id}, voted for {voted}"
                )
            control: Any
            for control in ready.control:
                granting = [v.voter_id for v in control.granting_voters]
                self.out.append(
                    f"  append {control.NAME} of leader {control.leader_id}, elected by {granting}"
                )
                self.ends[i] = OffsetAndEpoch(self.ends[i].offset + 1, node.epoch)
                node.step(LogAppended(self.ends[i]))
            for message in ready.outgoing:
                self.under_way.append(message)
                self.out.append(f"  to {message.receiver.id}: {_text(message)}")
            if ready.high_watermark is not None:
                self.out.append(f"  high watermark {ready.high_watermark}")
            if ready.leader_change is not None:
                self.out.append(f"  leader is {ready.leader_change[0]} of epoch {ready.leader_change[1]}")


def _text(message: Outgoing) -> str:
    if isinstance(message, BeginQuorumEpoch):
        return f"I lead epoch {message.epoch}"
    if isinstance(message, EndQuorumEpoch):
        return f"I lead epoch {message.epoch} no more, go first {[key.id for key in message.preferred]}"
    kind = "pre-vote" if message.pre_vote else "vote"
    if isinstance(message, VoteRequest):
        log = f"{message.last_log.offset} in epoch {message.last_log.epoch}"
        return f"asks for a {kind} in epoch {message.epoch}, log ends at {log}"
    verdict = "granted" if message.granted else "refused"
    leader = "" if message.leader_id is None else f", leader is {message.leader_id}"
    return f"{kind} {verdict} in epoch {message.epoch}{leader}"
