"""The follower's side: finds the leader, fetches from it, truncates what diverges, downloads snapshots.

It sends one request at a time. A fetch claims that everything before its offset is on disk, so it waits for the sync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Final

from ottla.clock import Timer
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.peers import Endpoint, PeerFailure
from ottla.raft.contacts import FETCHES, Contacts
from ottla.raft.messages import LeaderFound, LeaderGone, LeaderResponded
from ottla.raft.metadata_replica import MetadataReplica, Post
from ottla.raft.node import RaftState
from ottla.raft.requests import (
    fetch_request,
    fetch_snapshot_request,
    fetched_partition,
    fetched_snapshot,
)
from ottla.raft.snapshots import SnapshotDownload
from ottla.raft.types import OffsetAndEpoch
from ottla.wire import messages

_logger = logging.getLogger(__name__)

MAX_WAIT_MS: Final = 500
"""How long the leader may hold a fetch without new data; Kafka's value."""

_FETCHING: Final = (RaftState.FOLLOWER, RaftState.UNATTACHED, RaftState.RESIGNED)
"""The states in which this node looks for a leader or follows one. A node that resigned may have missed an election."""

_STALE: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)


Turn = tuple[int, BrokerId | None]
"""An epoch and its leader."""


class MetadataFetcher:
    """Fetches the metadata log. Call `send_next` after every change: it decides whether there is a request to send."""

    def __init__(
        self,
        replica: MetadataReplica,
        contacts: Contacts,
        cluster_id: str,
        executor: Executor,
        post: Post,
        open_download: Callable[[OffsetAndEpoch], SnapshotDownload],
    ) -> None:
        self._replica = replica
        self._contacts = contacts
        self._cluster_id = cluster_id
        self._executor = executor
        self._post = post
        self._open_download = open_download
        self._turn: Turn | None = None
        """The epoch and leader of the request in flight. Responses for any other come too late."""
        self._pause: Timer | None = None
        self._paused_in: Turn | None = None
        self._ask_others = False
        """The leader did not answer: ask another node next."""
        self._download: SnapshotDownload | None = None
        self._finishing = False
        self.last_fetch: float | None = None
        """When the leader last answered, on the monotonic clock."""

    # Sending

    def send_next(self) -> None:
        """Send the next request if one is due."""
        replica, node = self._replica, self._replica.node
        if not replica.running or node.state not in _FETCHING:
            return
        now = (node.epoch, node.leader_id)
        if self._turn == now or self._finishing:
            return
        if self._pause is not None:
            if self._paused_in == now:
                return
            self._stop_pause()
        if not replica.is_durable:
            replica.make_durable()
            return
        endpoint = self._target()
        if endpoint is None:
            self._back_off()
            return
        self._turn = now
        self._send(endpoint)

    def _target(self) -> Endpoint | None:
        node = self._replica.node
        leader = None
        if node.state is RaftState.FOLLOWER and node.leader_id is not None:
            leader = self._contacts.endpoint_of(node.leader_id)
        if leader is not None and not self._ask_others:
            return leader
        self._ask_others = False
        places = self._contacts.places_to_ask()
        return self._replica.clock.random.choice(places) if places else leader

    def _send(self, endpoint: Endpoint) -> None:
        replica, node = self._replica, self._replica.node
        turn = (node.epoch, node.leader_id)
        config, local = replica.config, replica.local.key
        download = self._download
        if download is not None and download.epoch != node.epoch:
            download.discard()
            download = self._download = None
        failed = partial(self._on_failure, turn, endpoint)
        if download is not None and endpoint.node_id == node.leader_id:
            snapshot = fetch_snapshot_request(
                self._cluster_id,
                local,
                node.epoch,
                download.snapshot_id,
                download.position,
                config.fetch_snapshot_max_bytes,
            )
            on_snapshot = partial(self._on_snapshot, turn, endpoint, download)
            self._contacts.send(endpoint, FETCHES, snapshot, on_snapshot, failed)
            return
        request = fetch_request(
            self._cluster_id,
            local,
            node.epoch,
            replica.log.end,
            node.high_watermark,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=MAX_WAIT_MS,
        )
        self._contacts.send(endpoint, FETCHES, request, partial(self._on_fetch, turn, endpoint), failed)

    def _back_off(self) -> None:
        """Pause before the next request."""
        node = self._replica.node
        self._turn = None
        self._paused_in = (node.epoch, node.leader_id)
        if self._pause is None:
            pause_s = self._replica.config.retry_backoff_ms / 1000
            self._pause = self._replica.clock.call_later(pause_s, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self.send_next()

    def _stop_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    # Failing

    def _on_failure(self, turn: Turn, endpoint: Endpoint, why: PeerFailure) -> None:
        if turn != self._turn or not self._replica.running:
            return
        is_leader = endpoint.node_id >= 0 and endpoint.node_id == self._replica.node.leader_id
        self._ask_others = is_leader
        self._back_off()
        if not is_leader:
            return
        if why is PeerFailure.REFUSED:
            self._replica.step(LeaderGone())
        elif why is PeerFailure.DISCONNECTED:
            self._contacts.probe(endpoint, partial(self._probed, turn))

    def _probed(self, turn: Turn, why: PeerFailure | None) -> None:
        node = self._replica.node
        if why is PeerFailure.REFUSED and turn == (node.epoch, node.leader_id):
            self._replica.step(LeaderGone())

    # Responses

    def _on_fetch(self, turn: Turn, endpoint: Endpoint, response: messages.FetchResponse) -> None:
        if turn != self._turn or not self._replica.running:
            return
        partition = fetched_partition(response)
        if response.error_code or partition is None:
            self._refused(endpoint, response.error_code)
            return
        self._contacts.learn_all(response.node_endpoints)
        if not self._may_use(endpoint, partition):
            return
        self._turn = None
        self.last_fetch = self._replica.clock.monotonic()
        replica = self._replica
        try:
            self._apply(partition)
        except ApiException as e:
            _logger.warning(
                "Batches of the metadata log from node %d cannot be used: %s", endpoint.node_id, e
            )
            self._back_off()
            return
        if replica.running:
            replica.process()

    def _may_use(
        self,
        endpoint: Endpoint,
        partition: messages.FetchResponse.PartitionData | messages.FetchSnapshotResponse.PartitionSnapshot,
    ) -> bool:
        """Whether the response is from the leader of this epoch. If not, learn the leader that it reports."""
        replica, node = self._replica, self._replica.node
        leader_id = partition.current_leader.leader_id
        found = LeaderFound(None if leader_id < 0 else leader_id, partition.current_leader.leader_epoch)
        error = partition.error_code
        if found.epoch < node.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._back_off()
            return False
        if found.epoch > node.epoch or error in _STALE or node.leader_id is None:
            resigned = error == ErrorCode.NOT_LEADER_OR_FOLLOWER and endpoint.node_id == node.leader_id
            self._back_off()
            replica.step(found)
            if resigned and found.epoch == node.epoch and node.leader_id == endpoint.node_id:
                # The process is up but does not lead any more: it has resigned, or was restarted.
                replica.step(LeaderGone())
            return False
        if error or leader_id != node.leader_id or node.state is not RaftState.FOLLOWER:
            self._refused(endpoint, error)
            return False
        return True

    def _refused(self, endpoint: Endpoint, error: int) -> None:
        if error:
            _logger.info(
                "Node %d answered a fetch of the metadata log with error %d", endpoint.node_id, error
            )
        self._ask_others = True
        self._back_off()

    def _apply(self, partition: messages.FetchResponse.PartitionData) -> None:
        replica = self._replica
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        high_watermark = None
        if diverging.epoch >= 0:
            replica.truncate(OffsetAndEpoch(diverging.end_offset, diverging.epoch))
        elif snapshot.end_offset >= 0 and snapshot.epoch >= 0:
            if self._download is not None:
                self._download.discard()
            self._download = self._open_download(OffsetAndEpoch(snapshot.end_offset, snapshot.epoch))
        else:
            if partition.records:
                replica.append_fetched(partition.records)
            high_watermark = None if partition.high_watermark < 0 else partition.high_watermark
        if replica.running:
            replica.node.tick(replica.now_ms())
            replica.node.step(LeaderResponded(high_watermark))

    # Snapshots

    def _on_snapshot(
        self,
        turn: Turn,
        endpoint: Endpoint,
        download: SnapshotDownload,
        response: messages.FetchSnapshotResponse,
    ) -> None:
        if turn != self._turn or not self._replica.running or download is not self._download:
            return
        partition = fetched_snapshot(response)
        if response.error_code or partition is None:
            self._give_up_download()
            self._refused(endpoint, response.error_code)
            return
        self._contacts.learn_all(response.node_endpoints)
        if partition.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            self._give_up_download()
            self._back_off()
            self._replica.step(LeaderResponded())
            return
        if not self._may_use(endpoint, partition):
            return
        sent = partition.snapshot_id
        same = (sent.end_offset, sent.epoch) == tuple(download.snapshot_id)
        if not same or partition.position != download.position or not partition.unaligned_records:
            self._give_up_download()
            self._back_off()
            return
        self._turn = None
        download.append(bytes(partition.unaligned_records))
        if download.position >= partition.size:
            self._finish(download)
        self._replica.step(LeaderResponded())

    def _give_up_download(self) -> None:
        if self._download is not None:
            self._download.discard()
            self._download = None

    def _finish(self, download: SnapshotDownload) -> None:
        self._download, self._finishing = None, True
        future: Future[int] = self._executor.submit(download.finish)
        future.add_done_callback(lambda done: self._post(partial(self._finished, download, done)))

    def _finished(self, download: SnapshotDownload, future: Future[int]) -> None:
        self._finishing = False
        replica = self._replica
        if not replica.running:
            return
        error = future.exception()
        if error is not None:
            replica.fail(error)
            return
        if replica.node.state is RaftState.FOLLOWER:
            try:
                replica.take_snapshot(download.snapshot_id, future.result())
            except ApiException as e:
                replica.fail(e)
                return
        replica.process()
