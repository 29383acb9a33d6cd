"""The futures that `send` and `commit_async` return.

Futures have no lock: every send makes one, and a lock would cost more than the rest of it. The thread that brings the
result stores it first and then looks for waiting callbacks. A thread that adds a callback adds it first and then looks
for the result. So at least one of the two sees the other, and `list.pop` gives each callback to one of them only.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.client.errors import KafkaError, KafkaTimeoutError, RetriableError, from_engine
from ottla.client.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as EngineError
    from confluent_kafka import Message

    from ottla.client.engine_types import EngineMessage

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_HURRY_S = 0.001
_AGAIN_S = 0.05


class Future(Generic[T]):
    """A value or an exception that arrives once. Callbacks run in the thread that brings it."""

    # Defaults of the class: an instance stores only what differs, which makes futures cheap.
    is_done = False
    exception: BaseException | None = None
    _value: Any = None
    _waiting: list[tuple[bool, Callable[..., object]]] | None = None
    _event: threading.Event | None = None

    @property
    def value(self) -> T | None:
        """The result, or None as long as there is none."""
        return self._value if self.exception is None else None

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        return self.is_done and isinstance(self.exception, RetriableError)

    def success(self, value: T) -> Future[T]:
        self._complete(value, None)
        return self

    def failure(self, error: BaseException | type[BaseException]) -> Future[T]:
        exception = error() if isinstance(error, type) else error
        if not isinstance(exception, BaseException):
            raise TypeError(f"a future fails with an exception, not with {error!r}")
        self._complete(None, exception)
        return self

    def _complete(self, value: object, exception: BaseException | None) -> None:
        self._value = value
        self.exception = exception
        self.is_done = True
        if self._event is not None:
            self._event.set()
        if self._waiting is not None:
            self._call_waiting()

    def _call_waiting(self) -> None:
        """Call the waiting callbacks in their order, each of them once, even if two threads get here."""
        waiting = self._waiting or []
        while waiting:
            try:
                on_success, function = waiting.pop(0)
            except IndexError:
                return
            if on_success == (self.exception is None):
                _call(function, self.value if on_success else self.exception)

    def _add(
        self,
        on_success: bool,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        if args or kwargs:
            function = functools.partial(function, *args, **kwargs)
        self.__dict__.setdefault("_waiting", []).append((on_success, function))
        if self.is_done:
            self._call_waiting()

    def add_callback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Future[T]:
        """Call `function(*args, value, **kwargs)` on success; at once if the value is there already."""
        self._add(True, function, args, kwargs)
        return self

    def add_errback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Future[T]:
        """Call `function(*args, exception, **kwargs)` on failure."""
        self._add(False, function, args, kwargs)
        return self

    def add_both(self, function: Callable[..., object], *args: object, **kwargs: object) -> Future[T]:
        return self.add_callback(function, *args, **kwargs).add_errback(function, *args, **kwargs)

    def chain(self, future: Future[T]) -> Future[T]:
        """Let another future end as this one does."""
        return self.add_callback(future.success).add_errback(future.failure)

    def get(self, timeout: float | None = None) -> T:
        """Wait for the result, `timeout` seconds at most; a failure is raised."""
        if not self.is_done and not self._wait(timeout):
            raise KafkaTimeoutError(f"no result after {timeout} s")
        if self.exception is not None:
            raise self.exception
        return self.value  # type: ignore[return-value]

    def _wait(self, timeout: float | None) -> bool:
        event: threading.Event = self.__dict__.setdefault("_event", threading.Event())
        return self.is_done or event.wait(timeout)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an event loop of asyncio."""
        import asyncio

        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        def wake(_: object) -> None:
            loop.call_soon_threadsafe(arrive)

        self.add_both(wake)
        yield from arrived.__await__()
        return self.get()


class FutureRecordMetadata(Future[RecordMetadata]):
    """The place of one record in its partition, known once the broker has acknowledged it."""

    _hurry: Callable[[float], object]
    _header_size = -1

    def delivered(self, error: EngineError | None, message: Message) -> None:
        """The engine's delivery report. The metadata is made when a caller asks for it."""
        if error is not None:
            self._complete(None, from_engine(error))
            return
        # `_complete`, in line: this runs once per record.
        self._value = message
        self.is_done = True
        if self._event is not None:
            self._event.set()
        if self._waiting is not None:
            self._call_waiting()

    @property
    def value(self) -> RecordMetadata | None:
        found = self._value
        if found is None or self.exception is not None:
            return None
        if not isinstance(found, RecordMetadata):
            self._value = found = _metadata(found, self._header_size)
        return found

    def get(self, timeout: float | None = None) -> RecordMetadata:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_done and (deadline is None or time.monotonic() < deadline):
            # A caller waits for this record, so it must not linger for a fuller batch.
            self._hurry(_HURRY_S)
            left = _AGAIN_S if deadline is None else min(_AGAIN_S, deadline - time.monotonic())
            self._wait(max(0.0, left))
        return super().get(0.0)


def failed_send(error: KafkaError) -> FutureRecordMetadata:
    future = FutureRecordMetadata()
    future.failure(error)
    return future


def _metadata(message: EngineMessage, header_size: int) -> RecordMetadata:
    topic, partition = message.topic(), message.partition()
    key, value = message.key(), message.value()
    offset = message.offset()
    return RecordMetadata(
        topic,
        partition,
        TopicPartition(topic, partition),
        -1 if offset is None else offset,
        message.timestamp()[1],
        None,
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        header_size,
    )


def _call(function: Callable[..., object], argument: object) -> None:
    try:
        function(argument)
    except Exception:
        # The callback is the user's; the other callbacks must still run.
        _logger.exception("a callback of a future failed")
