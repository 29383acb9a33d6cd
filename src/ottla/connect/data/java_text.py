"""Numbers and JSON as Java and its JSON library write them, so that equal values have equal bytes."""

from __future__ import annotations

import decimal
import functools
import math
import re
import struct
from json.encoder import encode_basestring
from typing import Final

from ottla.connect.data.schema import ConnectValue
from ottla.java_order import java_set_order

_CONTROL: Final = re.compile(r"\\u00[01][0-9a-f]")
PLAIN_FROM: Final = 1e-3
PLAIN_BELOW: Final = 1e7


class Float32(float):
    """A number whose text has the digits of a 32-bit float."""


def java_double(value: float) -> str:
    """Java's text of a double.

    >>> java_double(1e10), java_double(100.0), java_double(1e-5)
    ('1.0E10', '100.0', '1.0E-5')
    """
    return _java_number(value, repr(value))


def java_float(value: float) -> str:
    """Java's text of a float.

    >>> java_float(0.1)
    '0.1'
    """
    if not math.isfinite(value):
        return _java_number(value, "")
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if _as_float32(float(text)) == _as_float32(value):
            return _java_number(value, text)
    return _java_number(value, repr(value))


def _as_float32(value: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return rounded


def _java_number(value: float, shortest: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    size = abs(value)
    if size == 0.0:
        return f"{sign}0.0"
    if PLAIN_FROM <= size < PLAIN_BELOW:
        text = format(decimal.Decimal(shortest.lstrip("-")), "f")
        return sign + (text if "." in text else f"{text}.0")
    _, digits, exponent = decimal.Decimal(shortest).as_tuple()
    if len(digits) == 1 and float(f"{value:.1e}") == value:
        # Java shows two digits at least, and then the closest ones.
        _, digits, exponent = decimal.Decimal(f"{value:.1e}").as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    power = exponent + len(digits) - 1
    return f"{sign}{shown[0]}.{shown[1:] or '0'}E{power}"


@functools.lru_cache(1024)
def _order(keys: tuple[str, ...], slots: int) -> tuple[str, ...]:
    return tuple(java_set_order(keys, slots))


class JavaMap(dict[str, ConnectValue]):
    """A HashMap that began with another number of slots than 16, which its order depends on."""

    slots: int = 16


def copied(value: dict[str, ConnectValue], capacity: int | None = None) -> JavaMap:
    """A copy, as `new HashMap<>(map)` makes it; with a capacity, an empty map for that many entries."""
    wanted = int(len(value) / 0.75 + 1) if capacity is None else capacity
    made = JavaMap({key: value[key] for key in java_keys(value)} if capacity is None else ())
    if value or capacity is not None:
        made.slots = 1 << max(0, wanted - 1).bit_length()
    return made


def java_keys(value: dict[str, ConnectValue]) -> tuple[str, ...]:
    """The keys of a map in the order in which Java iterates over them."""
    if isinstance(value, Ordered):
        return tuple(value)
    return _order(tuple(value), value.slots if isinstance(value, JavaMap) else 16)


class Ordered(dict[str, ConnectValue]):
    """A JSON object that keeps the order of its entries; a plain dict is written in the order of a HashMap."""


def to_json(value: ConnectValue) -> str:
    """Compact JSON, with plain dicts in the order of a HashMap.

    >>> to_json({"topic": "a", "cluster": [1, 2.5, None]})
    '{"cluster":[1,2.5,null],"topic":"a"}'
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = java_float(value) if isinstance(value, Float32) else java_double(value)
        return text if math.isfinite(value) else f'"{text}"'
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, Ordered):
        return "{" + ",".join(f"{quoted(key)}:{to_json(one)}" for key, one in value.items()) + "}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(key)}:{to_json(value[key])}" for key in java_keys(value)) + "}"
    return "[" + ",".join(map(to_json, value)) + "]"


def quoted(text: str) -> str:
    """A JSON string; control characters have capital digits, as Java's library writes them."""
    found: str = encode_basestring(text)
    return _CONTROL.sub(lambda one: "\\u" + one.group()[2:].upper(), found) if "\\u00" in found else found
