"""Consumer groups under any order of events: never two owners, everything assigned in the end, all of it in the log."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import examples
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.errors import ApiException, ErrorCode
from unit.coordinator.group.consumer.consumer_classic_client import ClassicClient
from unit.coordinator.group.consumer.consumer_rig import Member, Rig, settle, snapshot, topic_id

TOPICS = ("t-1", "t-2", "u-1")
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"topics": ["t-1"]},
    {"topics": ["t-1", "t-2"]},
    {"topics": ["u-1", "t-2"]},
    {"topics": []},
    {"regex": "t-.*"},
    {"regex": ".-1"},
    {"topics": ["u-1"], "regex": "t-.*"},
)
SESSION_MS = 45_000
CLASSIC_SESSION_MS = 30_000
REBALANCE_MS = 60_000
START_OVER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}


class ConsumerGroupModel(RuleBasedStateMachine):
    """Members that are there, some of them static, and the shard that coordinates them."""

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member] = []
        self.classic: list[ClassicClient] = []
        self.away: list[str] = []
        self.seen: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        """When the first response was lost that may have asked the member for partitions it still has."""
        self.names = 0

    @initialize(partitions=st.integers(1, 6), assignor=st.sampled_from(["uniform", "range"]))
    def begin(self, partitions: int, assignor: str) -> None:
        # Classic members alone would make it a classic group, where they assign themselves: not here.
        self.rig = Rig(dict.fromkeys(TOPICS, partitions), group_consumer_migration_policy="upgrade")
        self.assignor = assignor

    def _member(self, choice: int) -> Member:
        return self.members[choice % len(self.members)]

    def _beat(self, member: Member) -> None:
        try:
            member.beat()
        except ApiException as error:
            if error.code not in START_OVER:
                raise
            try:
                member.join()
            except ApiException as again:
                # A static member whose place was taken meanwhile.
                assert again.code is ErrorCode.UNRELEASED_INSTANCE_ID
                member.owned, member.wanted = {}, None
                self.members.remove(member)
        self.seen[member.member_id] = self.rig.clock.now_ms()
        if not member.must_give_up():
            self.lost.pop(member.member_id, None)

    def _is_out_of_touch(self, member: Member) -> bool:
        """Whether the coordinator may have removed the member: its session or its rebalance has timed out."""
        now_ms = self.rig.clock.now_ms()
        lost_ms = self.lost.get(member.member_id, now_ms)
        return now_ms >= self.seen[member.member_id] + SESSION_MS or now_ms >= lost_ms + REBALANCE_MS

    # -- what members do

    @precondition(lambda self: len(self.members) < 7)
    @rule(subscription=st.sampled_from(SUBSCRIPTIONS), is_static=st.booleans())
    def join(self, subscription: dict[str, Any], is_static: bool) -> None:
        self.names += 1
        instance_id = None
        if is_static:
            instance_id = self.away.pop() if self.away else f"i{self.names}"
        member = Member(
            self.rig, f"m{self.names}", instance_id=instance_id, assignor=self.assignor, **subscription
        )
        member.join()
        self.members.append(member)
        self.seen[member.member_id] = self.rig.clock.now_ms()

    @precondition(lambda self: self.members)
    @rule(choice=st.integers(0, 99))
    def beat(self, choice: int) -> None:
        self._beat(self._member(choice))

    @precondition(lambda self: self.members)
    @rule()
    def everyone_beats(self) -> None:
        for member in list(self.members):
            self._beat(member)

    @precondition(lambda self: self.members)
    @rule(choice=st.integers(0, 99))
    def lose_an_answer(self, choice: int) -> None:
        """The broker got the heartbeat, but the member does not get the response: it reports everything again."""
        member = self._member(choice)
        member.give_up()
        epoch, owned, wanted = member.epoch, member.owned, member.wanted
        if epoch == 0:
            return
        try:
            member.beat()
        except ApiException:
            self._beat(member)
        else:
            self.seen[member.member_id] = self.rig.clock.now_ms()
            self.lost.setdefault(member.member_id, self.rig.clock.now_ms())
            member.epoch, member.owned, member.wanted = epoch, owned, wanted
            member._full = True

    @precondition(lambda self: self.members)
    @rule(choice=st.integers(0, 99), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe_again(self, choice: int, subscription: dict[str, Any]) -> None:
        member = self._member(choice)
        member.topics = subscription.get("topics", [])
        member.regex = subscription.get("regex", "")
        member._full = True
        self._beat(member)

    @precondition(lambda self: self.members)
    @rule(choice=st.integers(0, 99), for_a_while=st.booleans())
    def leave(self, choice: int, for_a_while: bool) -> None:
        member = self._member(choice)
        self.members.remove(member)
        comes_back = for_a_while and member.instance_id is not None
        try:
            member.leave(-2 if comes_back else -1)
        except ApiException as error:
            assert error.code in START_OVER | {ErrorCode.FENCED_INSTANCE_ID}
        else:
            if comes_back and member.instance_id is not None:
                self.away.append(member.instance_id)

    @precondition(lambda self: self.members)
    @rule(choice=st.integers(0, 99))
    def crash(self, choice: int) -> None:
        self.members.remove(self._member(choice))

    # -- members of the classic protocol among them

    def _has_group(self) -> bool:
        return any(not group.is_empty for group in self.rig.shard.groups)

    def _classic_step(self, client: ClassicClient) -> None:
        try:
            client.step()
        except ApiException as error:
            assert error.code is ErrorCode.REBALANCE_IN_PROGRESS
        self.seen[client.member_id] = self.rig.clock.now_ms()

    @precondition(lambda self: len(self.classic) < 3 and self._has_group())
    @rule(topics=st.sampled_from([["t-1"], ["t-1", "u-1"], []]))
    def classic_join(self, topics: list[str]) -> None:
        client = ClassicClient(self.rig, topics)
        client.join()
        self.classic.append(client)
        self.seen[client.member_id] = self.rig.clock.now_ms()
        if client.member_id in self.rig.group.members:
            client.sync()

    @precondition(lambda self: self.classic)
    @rule(choice=st.integers(0, 99))
    def classic_beat(self, choice: int) -> None:
        client = self.classic[choice % len(self.classic)]
        if client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID:
            self.classic.remove(client)
        else:
            self._classic_step(client)

    @precondition(lambda self: self.classic)
    @rule(choice=st.integers(0, 99), says_so=st.booleans())
    def classic_goes(self, choice: int, says_so: bool) -> None:
        client = self.classic.pop(choice % len(self.classic))
        if says_so:
            client.leave()

    # -- what happens around them

    @rule(seconds=st.sampled_from([1, 2, 11, 30]))
    def time_passes(self, seconds: int) -> None:
        self.rig.clock.advance_ms(seconds * 1000)
        for member in self.members:
            if self._is_out_of_touch(member):
                # It has noticed itself that it is out of touch. A restart may have prolonged its session: then its
                # next heartbeat succeeds, and has to be a full one to get the assignment again.
                member.owned, member.wanted = {}, None
                member._full = True
        self.classic = [
            client
            for client in self.classic
            if self.rig.clock.now_ms() < self.seen[client.member_id] + CLASSIC_SESSION_MS
        ]

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 2))
    def add_partitions(self, topic: str, more: int) -> None:
        present = self.rig.image.topics.by_name.get(topic)
        if present is None:
            self.rig.create_topic(topic, more)
        elif len(present.partitions) < 10:
            self.rig.add_partitions(topic, len(present.partitions) + more)

    @rule(topic=st.sampled_from(TOPICS))
    def create_or_keep(self, topic: str) -> None:
        if topic not in self.rig.image.topics.by_name:
            self.rig.create_topic(topic, 3)

    @rule()
    def restart(self) -> None:
        self.rig.restart()

    # -- what is always true

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        member: Any
        for member in (*self.members, *self.classic):
            for partition in member.partitions:
                assert partition not in owners, (partition, owners[partition], member.member_id)
                owners[partition] = member.member_id

    @invariant()
    def the_group_gives_no_partition_twice(self) -> None:
        for group in self.rig.shard.groups if hasattr(self, "rig") else ():
            assert isinstance(group, ConsumerGroup)
            for of in ("assigned", "pending_revocation"):
                given = [
                    (topic, number)
                    for member in group.members.values()
                    for topic, numbers in getattr(member, of).items()
                    for number in numbers
                ]
                assert len(given) == len(set(given))

    @invariant()
    def the_log_has_it_all(self) -> None:
        if hasattr(self, "rig"):
            now = snapshot(self.rig.shard)
            assert snapshot(self.rig.reload()) == now
            assert snapshot(self.rig.reload(compacted=True)) == now

    def teardown(self) -> None:
        """Left alone, everyone who is there gets something to do, and everything has someone who does it."""
        if not self.members:
            return
        self.classic.clear()
        for _ in range(50):
            # Those that crashed or are away are timed out on the way.
            for member in list(self.members):
                self._beat(member)
            self.rig.clock.advance_ms(1000)
            if not self.members:
                return
        settle(self.rig, self.members)
        wanted: set[tuple[bytes, int]] = set()
        subscriptions = self.rig.group.subscriptions
        for member in self.rig.group.members.values():
            for name in subscriptions.topics_of(member):
                topic = self.rig.image.topics.by_name[name]
                wanted |= {(topic_id(name), number) for number in topic.partitions}
        self.no_partition_has_two_owners()
        assert set().union(*(member.partitions for member in self.members)) == wanted


TestConsumerGroupModel = ConsumerGroupModel.TestCase
TestConsumerGroupModel.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
