"""Keeps librdkafka's assignment in step with what the consumer is to read.

It answers the group's rebalances, follows the topics of a consumer without a group and of a pattern, and
finds the offset at which a partition's reading begins. The engine never decides that on its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException

from ottla.client import consumer_engine, metadata
from ottla.client.consumer_state import ConsumerState
from ottla.client.errors import NoOffsetForPartitionError, RetriableError, from_engine
from ottla.client.settings import Settings
from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as EnginePartition

    from ottla.client.listeners import ConsumerRebalanceListener

_logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.1
_POLICIES = {"earliest": consumer_engine.EARLIEST, "latest": consumer_engine.LATEST}


class Assignments:
    """Call `prepare` before reading; the engine reports rebalances here as they happen."""

    def __init__(
        self, engine: Consumer, state: ConsumerState, settings: Settings, save: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._state = state
        self._settings = settings
        self._save = save
        self._live: set[TopicPartition] = set()
        self._look_at = 0.0
        self._asking: dict[str, Consumer] = {}
        self._timeout_s = settings["request_timeout_ms"] / 1000
        strategies = settings["partition_assignment_strategy"]
        names = [strategies] if isinstance(strategies, str | type) else strategies
        self._incremental = settings["group_protocol"] == "consumer" or any(
            "ooperative" in str(getattr(one, "name", one)) for one in names
        )

    def subscribe(
        self, topics: Iterable[str], pattern: str | None, listener: ConsumerRebalanceListener | None
    ) -> None:
        self._state.subscribe(topics, pattern, listener)
        self._look_at = 0.0
        if pattern is None and self._settings["group_id"] is not None:
            self._join()

    def unsubscribe(self) -> None:
        """Leave the group and have nothing assigned."""
        if self._state.subscribed is not None and self._settings["group_id"] is not None:
            self._engine.unsubscribe()
        self._engine.unassign()
        self._live = set()
        self._state.clear()

    def prepare(self) -> None:
        """Bring the engine up to date with the state; what cannot be found out yet is tried again next time."""
        state = self._state
        if state.subscribed is not None and time.monotonic() >= self._look_at:
            self._look_at_topics()
        if not state.manual and self._settings["group_id"] is not None:
            if state.without_position():
                self.find_positions()
            return
        if self._live != state.assigned:
            self.find_positions()
            self._engine.assign(consumer_engine.theirs(state.positions))
            self._live = set(state.assigned)
            self._pause_again(state.assigned)
        elif state.without_position():
            self.find_positions()

    def is_live(self, tp: TopicPartition) -> bool:
        """Whether the engine reads this partition already."""
        return tp in self._live

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._state.seek(tp, offset)
        if tp in self._live:
            self._seek_engine({tp: offset})

    def find_positions(self) -> None:
        """Give every assigned partition a position: where a seek has reset it, the group's commit, or the
        policy's end of the partition, in this order."""
        state = self._state
        missing = state.without_position()
        if not missing:
            return
        found: dict[TopicPartition, int] = {}
        without_order = [tp for tp in missing if tp not in state.resets]
        if without_order and self._settings["group_id"] is not None:
            commits = consumer_engine.committed(self._engine, without_order, self._timeout_s)
            found.update({tp: one.offset for tp, one in commits.items()})
        wanted = {}
        for tp in missing:
            if tp not in found:
                policy = state.resets.get(tp, self._settings["auto_offset_reset"])
                if policy not in _POLICIES:
                    raise NoOffsetForPartitionError(
                        f"{tp.topic}-{tp.partition} has no committed offset, and auto_offset_reset is {policy!r}"
                    )
                wanted[tp] = _POLICIES[policy]
        found.update(consumer_engine.list_offsets(self._engine, wanted, self._timeout_s))
        for tp, offset in found.items():
            state.resets.pop(tp, None)
            state.positions[tp] = offset
        if live := {tp: offset for tp, offset in found.items() if tp in self._live}:
            self._seek_engine(live)

    def close(self) -> None:
        for asking in self._asking.values():
            asking.close()
        self._asking.clear()

    def _seek_engine(self, offsets: dict[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            try:
                self._engine.seek(*consumer_engine.theirs({tp: offset}))
            except KafkaException as problem:
                if problem.args[0].name() != "_STATE":
                    raise from_engine(problem.args[0]) from None
                # The engine gave this partition up, over an offset that is not there: assign it again.
                self._give_again(tp, offset)

    def _give_again(self, tp: TopicPartition, offset: int) -> None:
        where = consumer_engine.theirs({tp: offset})
        if self._incremental and not self._state.manual and self._settings["group_id"] is not None:
            self._engine.incremental_unassign(where)
            self._engine.incremental_assign(where)
        else:
            self._engine.assign(consumer_engine.theirs({**self._state.positions, tp: offset}))
        self._pause_again(self._live)

    def _pause_again(self, partitions: Iterable[TopicPartition]) -> None:
        if again := [tp for tp in partitions if tp in self._state.paused]:
            self._engine.pause(consumer_engine.theirs(dict.fromkeys(again, 0)))

    # -- topics, for patterns and for consumers without a group

    def _look_at_topics(self) -> None:
        state = self._state
        assert state.subscribed is not None
        in_group = self._settings["group_id"] is not None
        self._look_at = time.monotonic() + self._settings["metadata_max_age_ms"] / 1000
        if in_group and state.pattern is None:
            return
        try:
            topics = metadata.all_topics(self._engine, self._timeout_s)
        except RetriableError as error:
            _logger.warning("the topics cannot be listed: %s", error)
            self._look_at = time.monotonic() + _LOOK_AGAIN_S
            return
        if state.pattern is not None:
            matching = state.matching(topics, self._is_hidden)
            if in_group and (matching != state.subscribed or not matching):
                state.subscribed = matching
                self._join()
            state.subscribed = matching
        if not in_group:
            self._take_all_partitions(topics)

    def _take_all_partitions(self, topics: dict[str, list[int]]) -> None:
        assert self._state.subscribed is not None
        wanted = self._state.subscribed
        self._state.replace(
            {TopicPartition(name, number) for name in wanted for number in topics.get(name, ())}
        )
        for name in wanted - topics.keys():
            if name not in self._asking and self._settings["allow_auto_create_topics"]:
                self._asking[name] = metadata.ask_for_topic(name, self._settings)
            self._look_at = time.monotonic() + _LOOK_AGAIN_S
        for name in self._asking.keys() & topics.keys():
            self._asking.pop(name).close()

    def _is_hidden(self, topic: str) -> bool:
        return self._settings["exclude_internal_topics"] and topic in metadata.INTERNAL_TOPICS

    # -- the group

    def _join(self) -> None:
        assert self._state.subscribed is not None
        try:
            if self._state.subscribed:
                self._engine.subscribe(
                    sorted(self._state.subscribed),
                    on_assign=self._on_assign,
                    on_revoke=self._on_revoke,
                    on_lost=self._on_lost,
                )
            else:
                self._engine.unsubscribe()
        except KafkaException as problem:
            raise from_engine(problem.args[0]) from None

    def _on_assign(self, engine: Consumer, partitions: list[EnginePartition]) -> None:
        came = set(consumer_engine.ours(partitions))
        if self._incremental:
            self._state.add(came)
        else:
            self._state.replace(came)
        if self._state.listener is not None:
            self._state.listener.on_partitions_assigned(came)
        self.find_positions()
        positions = {tp: self._state.positions[tp] for tp in came}
        if self._incremental:
            engine.incremental_assign(consumer_engine.theirs(positions))
        else:
            engine.assign(consumer_engine.theirs(positions))
        self._live = set(self._state.assigned)
        self._pause_again(came)

    def _on_revoke(self, engine: Consumer, partitions: list[EnginePartition]) -> None:
        self._save()
        self._lose(engine, partitions, "on_partitions_revoked")

    def _on_lost(self, engine: Consumer, partitions: list[EnginePartition]) -> None:
        self._lose(engine, partitions, "on_partitions_lost")

    def _lose(self, engine: Consumer, partitions: list[EnginePartition], tell: str) -> None:
        gone = set(consumer_engine.ours(partitions))
        listener = self._state.listener
        if listener is not None:
            getattr(listener, tell, listener.on_partitions_revoked)(gone)
        self._state.drop(gone)
        self._live -= gone
        if self._incremental:
            engine.incremental_unassign(partitions)
        else:
            engine.unassign()
