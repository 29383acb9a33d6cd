"""A queue on real logs and a virtual clock: share partitions, the share coordinator under them, and kill -9."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator_log import CoordinatedPartitions
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.share.persister import SharePersister
from ottla.coordinator.share.records import SERDE
from ottla.coordinator.share.service import ShareCoordinator
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.errors import ApiException
from ottla.metadata.topic_names import SHARE_STATE_TOPIC
from ottla.replica.share.fetch import Fetched, Results, ShareFetch
from ottla.replica.share.manager import SharePartitions
from ottla.replica.share.persister import ShareKey
from ottla.replica.share.states import Acknowledgement, AckType, AcquireMode, ShareSettings
from ottla.testing.memfs import MemFs
from ottla.wire import messages
from unit.replica.replica_scene import NODE, Scene, make_scene

GROUP = "g"
TOPIC = "t"


class Outcome:
    """What a fetch came to."""

    def __init__(self) -> None:
        self.results: Results | None = None
        self.fetch: ShareFetch

    @property
    def done(self) -> bool:
        return self.results is not None

    def take(self, results: Results) -> None:
        assert self.results is None, "answered twice"
        self.results = dict(results)

    def of(self, topic_id: bytes, index: int = 0) -> Fetched:
        assert self.results is not None
        return self.results[topic_id, index]


class ShareScene:
    """A broker with a share coordinator and one queue. `restart` is a kill -9 and a new start on the same disk."""

    def __init__(self, settings: ShareSettings | None = None, updates_per_snapshot: int = 4) -> None:
        self.settings = settings or ShareSettings(record_lock_ms=1000, auto_offset_reset="earliest")
        self.updates_per_snapshot = updates_per_snapshot
        self._begin(make_scene())
        self.topic_id = self.scene.create_topic(TOPIC, 2)
        self.state_topic_id = self.scene.create_topic(
            SHARE_STATE_TOPIC, 1, {"cleanup.policy": "delete", "retention.ms": "-1"}
        )
        self.settle()
        self.initialize()

    def _begin(self, scene: Scene) -> None:
        self.scene = scene
        self.clock = scene.clock
        runtime = CoordinatorRuntime(
            topic=SHARE_STATE_TOPIC,
            clock=scene.clock,
            executor=scene.executor,  # type: ignore[arg-type]
            post=lambda call, *args: call(*args),
            partitions=CoordinatedPartitions(scene.replicas, scene.clock),
            serde=SERDE,
            new_shard=lambda context: ShareCoordinatorShard(context, lambda: self.updates_per_snapshot),
            image=scene.replicas.image,
        )
        self.coordinator = ShareCoordinator(
            runtime, scene.clock, lambda: scene.broker.config, self._delete_records
        )
        self.persister = SharePersister(self.coordinator.ask, scene.clock, lambda: None)
        self.shares = SharePartitions(
            scene.replicas, scene.clock, self.persister, lambda group_id: self.settings, 100
        )
        scene.publishers.append(lambda delta, image: runtime.publish(delta, image, NODE))
        scene.publishers.append(self.shares.publish)

    def _delete_records(self, partition: int, offset: int) -> None:
        self.scene.replicas.find((SHARE_STATE_TOPIC, partition)).delete_records(offset)

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(5):
            self.scene.turn()
            self.scene.executor.run()
        self.scene.turn()

    def initialize(self, epoch: int = 1, start_offset: int = -1) -> None:
        request = messages.InitializeShareGroupStateRequest
        answers: list[Any] = []
        self.persister.initialize_state(
            request(
                group_id=GROUP,
                topics=[
                    request.InitializeStateData(
                        topic_id=self.topic_id,
                        partitions=[
                            request.PartitionData(
                                partition=index, state_epoch=epoch, start_offset=start_offset
                            )
                            for index in (0, 1)
                        ],
                    )
                ],
            ),
            answers.append,
        )
        self.settle()
        assert not any(part.error_code for part in answers[0].results[0].partitions), answers

    def restart(self) -> None:
        fs: MemFs = self.scene.fs
        self.coordinator.shutdown()
        self.persister.shutdown()
        self.coordinator.runtime.shutdown()
        self.scene.replicas.shutdown()
        fs._locks.clear()
        self._begin(make_scene(fs, self.clock))
        for name, topic_id, count in (
            (TOPIC, self.topic_id, 2),
            (SHARE_STATE_TOPIC, self.state_topic_id, 1),
        ):
            self.scene.create_topic(name, count, topic_id=topic_id)
        self.settle()

    # -- what producers and members do

    def produce(self, count: int, index: int = 0) -> int:
        first = self.scene.append(TOPIC, index, *(b"v" for _ in range(count)))
        self.scene.turn()
        return first

    def fetch(self, member: str = "m", indexes: tuple[int, ...] = (0,), **options: Any) -> Outcome:
        given: dict[str, Any] = {
            "max_bytes": 1 << 20,
            "min_bytes": 1,
            "max_wait_ms": 500,
            "max_records": 500,
            "batch_size": 500,
            "mode": AcquireMode.BATCH_OPTIMIZED,
        } | options
        outcome = Outcome()
        keys = [(self.topic_id, index) for index in indexes]
        outcome.fetch = ShareFetch(self.shares, GROUP, member, keys, outcome.take, **given)
        results = outcome.fetch.start()
        if results is not None:
            outcome.take(results)
        return outcome

    def acquired(self, member: str = "m", **options: Any) -> list[tuple[int, int, int]]:
        """What a fetch gets at once."""
        outcome = self.fetch(member, **{"max_wait_ms": 0, **options})
        self.settle()
        fetched = (outcome.results or {}).get((self.topic_id, 0), Fetched())
        assert fetched.error is None, fetched.error
        return [tuple(part) for part in fetched.acquired]

    def acknowledge(
        self, kind: AckType, first: int, last: int, member: str = "m", index: int = 0
    ) -> ApiException | None:
        outcomes: list[Any] = []
        part = (self.topic_id, index)
        acks = {part: [Acknowledgement(first, last, [kind])]}
        self.shares.acknowledge(GROUP, member, acks, outcomes.append)
        self.settle()
        error: ApiException | None = outcomes[0][part]
        return error

    def share(self, index: int = 0) -> Any:
        return self.shares.find(ShareKey(GROUP, self.topic_id, index))
