"""Serializers: objects to bytes on the way out, bytes to objects on the way in.

A plain function of one argument is accepted in place of each of them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

from ottla.client.structs import Headers


class Serializer(ABC):
    """Turns a key or value into bytes. A plain function of one argument will do as well.

    >>> class Upper(Serializer):
    ...     def serialize(self, topic, headers, data):
    ...         return data.upper().encode()
    >>> Upper().serialize("orders", [], "apple")
    b'APPLE'
    """

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: object) -> bytes | None:
        """The bytes of a key or value for a topic; None for no data.

        >>> JsonSerializer().serialize("orders", [], {"apples": 3})
        b'{"apples": 3}'
        """

    def close(self) -> None:
        """Release resources; the producer calls it when it is closed.

        >>> JsonSerializer().close()
        """
        return


class Deserializer(ABC):
    """Turns bytes into a key or value. A plain function of one argument will do as well.

    >>> class Length(Deserializer):
    ...     def deserialize(self, topic, headers, data):
    ...         return len(data)
    >>> Length().deserialize("orders", [], b"apple")
    5
    """

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> object:
        """The key or value that the bytes of a record stand for; `data` is None for a record without one.

        >>> JsonSerializer().deserialize("orders", [], b'{"apples": 3}')
        {'apples': 3}
        """

    def close(self) -> None:
        """Release resources; the consumer calls it when it is closed.

        >>> JsonSerializer().close()
        """
        return


class DefaultSerializer(Serializer, Deserializer):
    """Text in an encoding.

    >>> DefaultSerializer("latin-1").serialize("orders", [], "Äpfel")
    b'\\xc4pfel'
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: object) -> bytes | None:
        """The encoded text; bytes stay as they are.

        >>> DefaultSerializer().serialize("orders", [], "apple")
        b'apple'
        """
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data  # type: ignore[return-value]
        return cast("str", data).encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The decoded text.

        >>> DefaultSerializer().deserialize("orders", [], b"apple")
        'apple'
        """
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON in an encoding. None stays None, so that a record without a value can delete a key.

    >>> from ottla import KafkaProducer
    >>> with KafkaProducer(bootstrap_servers=bootstrap_servers, value_serializer=JsonSerializer()) as producer:
    ...     _ = producer.send("carts", {"apples": 3})
    """

    def serialize(self, topic: str, headers: Headers, data: object) -> bytes | None:
        """The object as JSON.

        >>> JsonSerializer().serialize("orders", [], [1, None])
        b'[1, null]'
        """
        return None if data is None else json.dumps(data).encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The object that JSON stands for.

        >>> JsonSerializer().deserialize("orders", [], b"[1, null]")
        [1, None]
        """
        return None if data is None else json.loads(data.decode(self.encoding))


Serialize = Callable[[str, Headers, Any], Any]


def serialize_function(given: object, setting: str) -> Serialize | None:
    """The setting `key_serializer` or `value_serializer` as one function of topic, headers and data."""
    return _function(given, setting, "serialize")


def deserialize_function(given: object, setting: str) -> Serialize | None:
    """The setting `key_deserializer` or `value_deserializer` as such a function."""
    return _function(given, setting, "deserialize")


def _function(given: object, setting: str, method: str) -> Serialize | None:
    if given is None:
        return None
    if hasattr(given, method):
        bound: Serialize = getattr(given, method)
        return bound
    if callable(given):
        function: Callable[[object], object] = given
        return lambda topic, headers, data: function(data)
    raise TypeError(f"{setting} must be a function or have a method {method}, and {given!r} has neither")
