"""A quorum with liars: two of three controllers damage their answers and requests; the third must not lose its mind.

Raft does not promise to be right among liars. What is promised: errors of our own kind only, no endless work, and a
node that goes on, or stops with a reason.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from fuzz.frames import mutate
from ottla.errors import ApiException
from ottla.peers import Endpoint
from ottla.testing.memory_peers import Respond
from ottla.wire import decode, encode
from ottla.wire.messages import response_class
from unit.raft import raft_cluster

HONEST = 1


class _Nobody:
    """Where a judge sits else: among liars there is nothing to judge."""

    def handle_commit(self, batches: Iterable[Any]) -> None:
        for _ in batches:
            pass

    def handle_load_snapshot(self, snapshot_id: Any, batches: Iterable[Any]) -> None:
        for _ in batches:
            pass

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None: ...


class LyingQuorum(raft_cluster.Cluster):
    """What passes between node 1 and the others is damaged now and then, always into something that decodes."""

    def __init__(self, seed: int, *, dynamic: bool) -> None:
        self.rng = random.Random(seed)
        self.lies = 0
        self.refusals = 0
        super().__init__(
            3,
            dynamic=dynamic,
            seed=seed,
            settings={"metadata.max.retention.bytes": "3000"},
            snapshot_bytes=1500,
        )
        self.start()

    def judge(self, node_id: int) -> Any:
        return _Nobody()

    def start(self, *node_ids: int, is_controller: bool = True) -> raft_cluster.Cluster:
        super().start(*node_ids, is_controller=is_controller)
        for node_id in node_ids or tuple(self.ids):
            place = self.locals[node_id].listeners["CONTROLLER"]
            self.network.serve(Endpoint(node_id, place.host, place.port), self._served_by(node_id))
        return self

    def _served_by(self, node_id: int) -> Any:
        process = self.processes[node_id]

        def serve(sender: int, request: Any, version: int, respond: Respond) -> None:
            def answer(given: Any) -> None:
                if sender == HONEST:
                    given = self._bent(response_class(request.API_KEY), given, version)
                respond(given)

            if node_id == HONEST:
                request = self._bent(type(request), request, version)
            try:
                process.serve(sender, request, version, answer)
            except ApiException:
                # The API layer would have answered with its code.
                self.refusals += 1

        return serve

    def _bent(self, cls: Any, message: Any, version: int) -> Any:
        if self.rng.random() > 0.25:
            return message
        good = bytearray(encode(message, version))
        for _ in range(20):
            try:
                bent = decode(cls, version, bytes(mutate(self.rng, good)))
            except ApiException:
                continue
            self.lies += 1
            return bent
        return message

    def run(self, seconds: float) -> None:
        """A fault stops a node with its reason; a new process takes its place, on an empty disk."""
        self.clock.advance(seconds)
        for node_id, process in list(self.processes.items()):
            for fault in process.faults:
                assert isinstance(fault, (ApiException, OSError)), repr(fault)
            if process.faults:
                self.kill(node_id)
                self.new_disk(node_id)
                self.start(node_id)


def run(seed: int, rounds: int, *, dynamic: bool = False) -> LyingQuorum:
    quorum = LyingQuorum(seed, dynamic=dynamic)
    for _ in range(rounds):
        quorum.run(quorum.rng.random() * 0.5)
        for process in list(quorum.processes.values()):
            if process.raft.is_leader:
                try:
                    process.raft.append([raft_cluster.feature(f"f{quorum.rng.randrange(50)}")])
                except ApiException:
                    quorum.refusals += 1
    return quorum
