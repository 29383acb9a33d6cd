"""Typed access to values by key: each accessor states the type that the caller expects."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from ottla.credentials.secret import Secret

Value = str | int | float | bool | tuple[str, ...] | Secret | None
"""The typed value of a key. A tuple is a list; None is Kafka's null; a password is a Secret."""


class TypedValues:
    """Values by key. The accessors are named after Kafka's types, which the table of keys guarantees."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def __getitem__(self, key: builtins.str) -> Value:
        return self._values[key]

    def find_int(self, key: builtins.str) -> builtins.int | None:
        """The value of a key that may be absent (`listener.name...`), or None."""
        value = self._values.get(key)
        assert value is None or type(value) is int, key
        return value

    def int(self, key: builtins.str) -> builtins.int:
        value = self._values[key]
        assert type(value) is int, key
        return value

    def opt_int(self, key: builtins.str) -> builtins.int | None:
        value = self._values[key]
        assert value is None or type(value) is int, key
        return value

    def float(self, key: builtins.str) -> builtins.float:
        value = self._values[key]
        assert isinstance(value, (int, float)), key
        return value

    def bool(self, key: builtins.str) -> builtins.bool:
        value = self._values[key]
        assert isinstance(value, bool), key
        return value

    def str(self, key: builtins.str) -> builtins.str:
        value = self._values[key]
        assert isinstance(value, str), key
        return value

    def opt_str(self, key: builtins.str) -> builtins.str | None:
        value = self._values[key]
        assert value is None or isinstance(value, str), key
        return value

    def list(self, key: builtins.str) -> tuple[builtins.str, ...]:
        """The elements of a LIST, or an empty tuple if it is unset."""
        value = self._values[key]
        assert value is None or isinstance(value, tuple), key
        return value or ()
