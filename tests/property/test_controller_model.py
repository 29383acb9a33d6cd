"""Brokers come, crash and leave in any order, leaders change the ISR, replicas move: what was committed stays.

The decisions are the controller's own functions. What replicas hold is modelled: a list of records each, which a
follower copies from the leader, and which a crash cuts short.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import examples
from ottla.config.broker import BrokerConfig
from ottla.controller.alter_partition import alter_partition
from ottla.controller.brokers import BrokerControlState, fence_broker, heartbeat, register_broker
from ottla.controller.elections import balance_leaders, elect_unclean_leaders
from ottla.controller.reassignments import alter_partition_reassignments
from ottla.controller.replay import ReplayState, replay
from ottla.controller.settings import Settings
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import (
    EMPTY_IMAGE,
    NO_LEADER,
    LeaderRecoveryState,
    MetadataImage,
    PartitionRegistration,
)
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SETTINGS = Settings(BrokerConfig.single_node({}), CLUSTER)
TOPIC = bytes(15) + b"\xaa"
BROKERS = (1, 2, 3, 4)
MIN_ISR = 2

some_broker = st.sampled_from(BROKERS)


class ControllerModel(RuleBasedStateMachine):
    """One partition of three replicas on four brokers, min.insync.replicas 2, unclean elections not allowed."""

    @initialize(elr=st.booleans())
    def begin(self, elr: bool) -> None:
        self.elr = elr
        self.image = EMPTY_IMAGE
        self.incarnations = 0
        self.lives: set[int] = set()
        self.logs: dict[int, list[int]] = {broker: [] for broker in BROKERS}
        self.committed: list[int] = []
        self.next_record = 0
        overrides = None if elr else {"eligible.leader.replicas.version": 0}
        default = ConfigRecord(
            resource_type=4, resource_name="", name="min.insync.replicas", value=str(MIN_ISR)
        )
        self.apply([*bootstrap_records(overrides=overrides), default])
        for broker in BROKERS:
            self.register(broker, clean=False)
            self.unfence(broker)
        partition = PartitionRecord(
            topic_id=TOPIC,
            partition_id=0,
            replicas=[1, 2, 3],
            isr=[1, 2, 3],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[self.image.brokers[broker].directories[0] for broker in (1, 2, 3)],
        )
        self.apply([TopicRecord(name="t", topic_id=TOPIC), partition])

    # What is decided becomes true

    @property
    def partition(self) -> PartitionRegistration:
        return self.image.topics.by_name["t"].partitions[0]

    def apply(self, records: list[Any]) -> None:
        before = self.image
        after = replay(ReplayState(before), records, before.offset + len(records), 1).image
        self.image = after
        if "t" in before.topics.by_name:
            self.check_change(before, before.topics.by_name["t"].partitions[0], self.partition)

    def check_change(
        self, before: MetadataImage, old: PartitionRegistration, new: PartitionRegistration
    ) -> None:
        assert new.leader_epoch >= old.leader_epoch
        assert new.partition_epoch >= old.partition_epoch
        if new != old:
            assert new.partition_epoch > old.partition_epoch
        if new.leader == old.leader:
            return
        assert new.leader_epoch > old.leader_epoch
        if new.leader == NO_LEADER:
            return
        if new.leader_recovery_state == LeaderRecoveryState.RECOVERING:
            # Only the last leader comes back so, and only when nobody was left who has everything.
            assert self.elr
            assert not old.elr or old.isr == ()
            assert old.last_known_elr == (new.leader,)
            self.committed = self.committed[: len(self.logs[new.leader])]

    def register(self, broker: int, *, clean: bool) -> None:
        existing = self.image.brokers.get(broker)
        self.incarnations += 1
        request = BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id=CLUSTER,
            incarnation_id=self.incarnations.to_bytes(16),
            rack=None,
            log_dirs=[(1000 + broker).to_bytes(16)],
            previous_broker_epoch=existing.epoch if clean and existing is not None else -1,
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=levels.min, max_supported_version=levels.max
                )
                for name, levels in SUPPORTED_FEATURES.items()
            ],
        )
        result = register_broker(
            self.image, request, SETTINGS, next_offset=self.image.offset + 1, session_is_alive=False
        )
        self.apply(result.records)

    def beat(self, broker: int, **wishes: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.image.brokers[broker].epoch,
            current_metadata_offset=self.image.offset,
            **wishes,
        )
        state, result = heartbeat(
            self.image, request, SETTINGS, registration_offset=0, others_know_shutdown=True
        )
        self.apply(result.records)
        return state

    def unfence(self, broker: int) -> None:
        assert self.beat(broker) is BrokerControlState.UNFENCED
        self.lives.add(broker)

    def isr_of(self, isr: list[int]) -> int:
        partition = self.partition
        data = AlterPartitionRequest.PartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                AlterPartitionRequest.BrokerState(broker_id=b, broker_epoch=self.image.brokers[b].epoch)
                for b in isr
            ],
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.image.brokers[partition.leader].epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=TOPIC, partitions=[data])],
        )
        result = alter_partition(self.image, request, SETTINGS, 3)
        self.apply(result.records)
        code: int = result.response.topics[0].partitions[0].error_code
        return code

    # What happens

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(all_get_it=st.booleans(), laggards=st.sets(some_broker))
    def produce(self, all_get_it: bool, laggards: set[int]) -> None:
        partition = self.partition
        self.logs[partition.leader].append(self.next_record)
        self.next_record += 1
        for follower in partition.isr:
            if all_get_it or follower not in laggards:
                self.logs[follower] = list(self.logs[partition.leader])
        leaders = self.logs[partition.leader]
        in_sync = all(self.logs[replica] == leaders for replica in partition.isr)
        if in_sync and len(partition.isr) >= MIN_ISR:
            self.committed = list(leaders)

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(follower=some_broker)
    def catch_up_and_join(self, follower: int) -> None:
        partition = self.partition
        if follower not in self.lives or follower not in partition.replicas or follower in partition.isr:
            return
        self.logs[follower] = list(self.logs[partition.leader])
        assert self.isr_of([*partition.isr, follower]) in (0, 108)

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(out=st.sets(some_broker, min_size=1))
    def leader_drops_laggards(self, out: set[int]) -> None:
        partition = self.partition
        isr = [replica for replica in partition.isr if replica not in out or replica == partition.leader]
        assert self.isr_of(isr) in (0, 108)

    @rule(broker=some_broker)
    def fence(self, broker: int) -> None:
        """Killed, or silent for too long."""
        self.lives.discard(broker)
        self.apply(fence_broker(self.image, SETTINGS, broker, self.image.brokers[broker].epoch).records)

    @rule(broker=some_broker, kept=st.integers(0, 3))
    def crash_and_return(self, broker: int, kept: int) -> None:
        """The machine lost power: the end of its log is gone. Only ELR promises to cope with that."""
        self.register(broker, clean=False)
        if self.elr:
            self.logs[broker] = self.logs[broker][: max(len(self.logs[broker]) - kept, 0)]
        self.unfence(broker)

    @rule(broker=some_broker)
    def restart_in_order(self, broker: int) -> None:
        if broker in self.lives:
            for _ in range(2):
                if self.beat(broker, want_shut_down=True) is BrokerControlState.SHUTDOWN_NOW:
                    break
            else:
                raise AssertionError("a broker that leads nothing may go")
            assert self.partition.leader != broker
        self.register(broker, clean=True)
        self.unfence(broker)

    @rule(broker=some_broker)
    def paused_broker_returns(self, broker: int) -> None:
        if self.image.brokers[broker].fenced:
            self.unfence(broker)

    @rule(replicas=st.lists(some_broker, min_size=2, max_size=4, unique=True) | st.none())
    def reassign(self, replicas: list[int] | None) -> None:
        wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=0, replicas=replicas
        )
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[wanted])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        self.apply(alter_partition_reassignments(self.image, request, SETTINGS).records)

    @rule()
    def by_the_clock(self) -> None:
        self.apply(balance_leaders(self.image, SETTINGS).records)
        assert not elect_unclean_leaders(self.image, SETTINGS).records

    # What always holds

    @invariant()
    def the_partition_is_sound(self) -> None:
        if "t" not in self.image.topics.by_name:
            return
        partition = self.partition
        assert set(partition.isr) <= set(partition.replicas)
        assert not set(partition.isr) & set(partition.elr)
        assert len(partition.directories) == len(partition.replicas)
        if partition.leader != NO_LEADER:
            assert partition.leader in partition.isr
            leader = self.image.brokers[partition.leader]
            assert not leader.fenced
            assert not leader.in_controlled_shutdown

    @invariant()
    def a_leader_has_all_that_was_committed(self) -> None:
        if "t" in self.image.topics.by_name and self.partition.leader != NO_LEADER:
            assert self.logs[self.partition.leader][: len(self.committed)] == self.committed


ControllerModel.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=30, deadline=None
)
TestController = ControllerModel.TestCase
