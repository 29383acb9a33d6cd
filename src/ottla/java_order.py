"""The order in which Java's HashSet and HashMap, and Kafka's TimelineHashMap, iterate over strings.

Kafka Streams prints names in it, and Kafka Connect writes the keys of its offsets in it: Java looks an offset up by
the bytes of its key, so both sides must agree on the order. Lists of groups and members have it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

V = TypeVar("V")

_FIBONACCI = 0x9E37_79B9_7F4A_7C15
"""2**64 divided by the golden ratio: Knuth's multiplicative hash."""

_FEWEST_SLOTS = 16
_LOAD_OF_16 = 12
"""A table of 16 slots grows when it holds more than 12 entries: Java's load factor of 0.75."""


def java_set_order(names: Iterable[str], slots: int = _FEWEST_SLOTS) -> list[str]:
    """The order of a HashSet of strings.

    >>> java_set_order(["topic", "cluster", "partition"])
    ['cluster', 'partition', 'topic']
    """
    chosen = list(dict.fromkeys(names))
    while len(chosen) * _FEWEST_SLOTS > slots * _LOAD_OF_16:
        slots *= 2
    return sorted(chosen, key=lambda name: spread_hash(name) & (slots - 1))


def java_map_order(entries: Mapping[str, V]) -> dict[str, V]:
    """The entries of a HashMap with strings as keys, in its order.

    >>> java_map_order({"topic": 1, "cluster": 2})
    {'cluster': 2, 'topic': 1}
    """
    return {name: entries[name] for name in java_set_order(entries)}


def timeline_order(names: Iterable[str]) -> list[str]:
    """The order of a TimelineHashMap, which holds the state of Kafka's coordinators, when each entry was put once.

    >>> timeline_order(["first", "second", "third"])
    ['third', 'second', 'first']
    """
    return _timeline_order(list(names), put_again=0)


def updated_timeline_order(names: Iterable[str]) -> list[str]:
    """The order of a TimelineHashMap when entries were put again, with another value.

    >>> updated_timeline_order(["member-1", "member-2"])
    ['member-2', 'member-1']
    """
    return _timeline_order(list(names), put_again=1)


def _timeline_order(names: list[str], put_again: int) -> list[str]:
    # The table doubles before a put that could fill it beyond its load factor, also if the key is there already.
    bits = 1
    while (len(names) + put_again) * 3 > 4 << bits:
        bits += 1
    # Of the names in one slot, the last comes first.
    names.reverse()
    return sorted(names, key=lambda name: _fibonacci_slot(name, bits))


def _fibonacci_slot(name: str, bits: int) -> int:
    value = java_hash(name)
    signed = value - (1 << 32) if value >> 31 else value
    return (signed * _FIBONACCI & 0xFFFF_FFFF_FFFF_FFFF) >> 64 - bits


def java_hash(text: str) -> int:
    """Java's `String.hashCode()`, as an unsigned number."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def spread_hash(text: str) -> int:
    """The hash as HashMap uses it: its upper bits take part in small tables too."""
    value = java_hash(text)
    return value ^ (value >> 16)
