"""A producer's transactions: which call is allowed when, and librdkafka's answers as exceptions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as EnginePartition

from ottla.client.errors import IllegalStateError, from_engine
from ottla.client.settings import Settings, common_engine_settings, with_engine_config
from ottla.client.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class Transactions:
    """Begin and end them. Without a `transactional_id` every call is refused."""

    def __init__(self, engine: Producer, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self._timeout_s = settings["max_block_ms"] / 1000
        self._ready = False

    def init(self) -> None:
        self._need_id()
        if self._ready:
            return
        with _translated():
            self._engine.init_transactions(self._timeout_s)
        self._ready = True

    def begin(self) -> None:
        self._need_id()
        with _translated():
            self._engine.begin_transaction()

    def commit(self) -> None:
        self._need_id()
        with _translated():
            self._engine.commit_transaction(self._timeout_s)

    def abort(self) -> None:
        self._need_id()
        with _translated():
            self._engine.abort_transaction(self._timeout_s)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata | str
    ) -> None:
        self._need_id()
        engine_offsets = [
            EnginePartition(tp.topic, tp.partition, one.offset, one.metadata or "")
            for tp, one in offsets.items()
        ]
        token = group.token if isinstance(group, ConsumerGroupMetadata) else None
        with _translated():
            if token is None:
                token = self._token_of(group.group_id if isinstance(group, ConsumerGroupMetadata) else group)
            self._engine.send_offsets_to_transaction(engine_offsets, token, self._timeout_s)

    def _need_id(self) -> None:
        if not self._settings["transactional_id"]:
            raise IllegalStateError("transactions need a transactional_id")

    def _token_of(self, group_id: str | None) -> object:
        """The token of a group that is known by its name alone: it has no member."""
        if not group_id:
            raise IllegalStateError("offsets are committed for a group, and the consumer has none")
        engine = common_engine_settings(self._settings)
        engine.pop("max.in.flight.requests.per.connection", None)
        consumer = Consumer(with_engine_config(engine | {"group.id": group_id}, self._settings))
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None
