"""Serializers: objects to bytes on the way out, bytes to objects on the way in.

A plain function will do wherever one of these is asked for.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ottla.client.structs import Headers


class Serializer(ABC):
    """Turns a key or value into bytes."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None: ...

    def close(self) -> None:
        """Called when the producer is closed."""
        return


class Deserializer(ABC):
    """Turns bytes into a key or value."""

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any: ...

    def close(self) -> None:
        """Called when the consumer is closed."""
        return


class DefaultSerializer(Serializer, Deserializer):
    """Text, in an encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data  # type: ignore[return-value]
        encoded: bytes = data.encode(self.encoding)
        return encoded

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON, in an encoding; None stays None, so that a record can be deleted."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        return None if data is None else json.dumps(data).encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        return None if data is None else json.loads(data.decode(self.encoding))


Serialize = Callable[[str, Headers, Any], Any]


def serialize_function(given: Any, setting: str) -> Serialize | None:
    """What `key_serializer` or `value_serializer` stands for, as one function of topic, headers and data."""
    return _function(given, setting, "serialize")


def deserialize_function(given: Any, setting: str) -> Serialize | None:
    """What `key_deserializer` or `value_deserializer` stands for."""
    return _function(given, setting, "deserialize")


def _function(given: Any, setting: str, method: str) -> Serialize | None:
    if given is None:
        return None
    if hasattr(given, method):
        bound: Serialize = getattr(given, method)
        return bound
    if callable(given):
        return lambda topic, headers, data: given(data)
    raise TypeError(f"{setting} must be a function or have a method {method}, and {given!r} has neither")
