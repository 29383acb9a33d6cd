"""The exceptions of the client API, by the names that kafka-python gave them.

The errors of broker responses are in `broker_errors`. This module has their base classes, the errors that the client
itself raises, and the translation of librdkafka's errors.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ClassVar

from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as EngineError


class KafkaError(RuntimeError):
    """The base class of all errors of the client API: catch it to catch them all.

    Its subclasses have kafka-python's names; `retriable` says whether the same call may succeed later.

    >>> from ottla import KafkaError, KafkaProducer
    >>> try:
    ...     KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100)
    ... except KafkaError as error:
    ...     print(type(error).__name__, error.retriable)
    NoBrokersAvailable True
    """

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False

    def __str__(self) -> str:
        text = super().__str__()
        return f"{type(self).__name__}: {text}" if text else type(self).__name__


class RetriableError(KafkaError):
    """The same call may succeed later."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The client's metadata of the cluster was out of date; the client refreshes it by itself."""

    invalid_metadata = True


class Cancelled(RetriableError):
    """The client was closed before the work was done."""


class CommitFailedError(KafkaError):
    """The group has rebalanced, and another member owns these partitions now."""


class IllegalArgumentError(KafkaError):
    """An argument with an invalid value."""


class IllegalStateError(KafkaError):
    """A call that the client's state does not allow: closed, not assigned, no group, no transaction."""


class KafkaConfigurationError(KafkaError, ValueError):
    """A setting that is unknown, has a bad value or contradicts another one."""


class KafkaConnectionError(InvalidMetadataError):
    """The connection to a broker failed."""


class KafkaTimeoutError(RetriableError):
    """The call did not finish within its timeout."""


class NoBrokersAvailable(KafkaTimeoutError):
    """None of the bootstrap servers answered."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` does not say where to start."""


class UnsupportedCodecError(KafkaError):
    """The compression is not available here."""


class TransactionAbortedError(KafkaError):
    """The record was not sent because its transaction was aborted."""


class BrokerResponseError(KafkaError):
    """A broker refused the request; `errno` is Kafka's error code."""

    errno: ClassVar[int] = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def message(self) -> str:
        """Kafka's name for the code."""
        return ErrorCode.of(self.errno).name

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class AuthorizationError(BrokerResponseError):
    """The principal may not do this."""


@functools.cache
def _by_code() -> dict[int, type[BrokerResponseError]]:
    from ottla.client import broker_errors

    classes = [one for one in vars(broker_errors).values() if isinstance(one, type)]
    return {
        one.errno: one for one in classes if issubclass(one, BrokerResponseError) and "errno" in vars(one)
    }


def for_code(code: int) -> type[BrokerResponseError]:
    """The class for one of Kafka's codes; a code that Kafka got since is an unknown one that keeps its number."""
    known = _by_code().get(code)
    if known is not None:
        return known
    return type("UnrecognizedBrokerError", (_by_code()[ErrorCode.UNKNOWN_SERVER_ERROR],), {"errno": code})


_ENGINE_ERRORS: dict[str, type[KafkaError]] = {
    "_TIMED_OUT": KafkaTimeoutError,
    "_MSG_TIMED_OUT": KafkaTimeoutError,
    "_TIMED_OUT_QUEUE": KafkaTimeoutError,
    "_WAIT_COORD": KafkaTimeoutError,
    "_TRANSPORT": KafkaConnectionError,
    "_ALL_BROKERS_DOWN": KafkaConnectionError,
    "_RESOLVE": KafkaConnectionError,
    "_SSL": KafkaConnectionError,
    "_STATE": IllegalStateError,
    "_NOT_CONFIGURED": IllegalStateError,
    "_CONFLICT": IllegalStateError,
    "_INVALID_ARG": IllegalArgumentError,
    "_NO_OFFSET": NoOffsetForPartitionError,
    "_PURGE_QUEUE": TransactionAbortedError,
    "_PURGE_INFLIGHT": TransactionAbortedError,
    "_DESTROY": Cancelled,
}

_ENGINE_CODES = {
    "_UNKNOWN_TOPIC": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "_UNKNOWN_PARTITION": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "_AUTHENTICATION": ErrorCode.SASL_AUTHENTICATION_FAILED,
    "_FENCED": ErrorCode.PRODUCER_FENCED,
    "_UNSUPPORTED_FEATURE": ErrorCode.UNSUPPORTED_VERSION,
    "_AUTO_OFFSET_RESET": ErrorCode.OFFSET_OUT_OF_RANGE,
}


def from_engine(error: EngineError) -> KafkaError:
    """librdkafka's error as an exception of this API. Its own codes are negative."""
    code, name, text = error.code(), error.name(), error.str()
    if code >= ErrorCode.UNKNOWN_SERVER_ERROR:
        return for_code(code)(text)
    if name in _ENGINE_CODES:
        return for_code(_ENGINE_CODES[name])(text)
    return _ENGINE_ERRORS.get(name, KafkaError)(text)
