"""Building blocks of generated Avro codecs: varints, logical types, and sentences about values that do not fit."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, cast

from ottla.registry.avro_types import AvroType
from ottla.schemas.avro_unions import Branch
from ottla.schemas.errors import InvalidData, SchemaError

ToRaw = Callable[[object], object]
"""From a program's value to the one that Avro writes; what is no value of its type stays as it is."""
FromRaw = Callable[..., object]
"""From what Avro reads to a program's value."""

TOO_DEEP: Final = (RecursionError, SyntaxError, MemoryError)
"""What Python raises for generated code that nests deeper than it takes."""
SMALL: Final = 8192
MAX_DIGITS: Final = 10_000
"""Of a decimal: a scale of a thousand million would make numbers of as many digits."""
MAX_EMPTY_ITEMS: Final = 1_000_000
"""Items without bytes (nulls) that an array of a record may have."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NAIVE_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_DAY: Final = _EPOCH.date().toordinal()
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def _varint(raw: int) -> bytes:
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_LAST: Final = tuple(_varint(number) for number in range(1 << 14))
_MORE: Final = tuple(bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << 14))
"""Fourteen bits of a varint, with more to follow."""


def _large(raw: int) -> bytes:
    out = b""
    while raw >> 14:
        out += _MORE[raw & 0x3FFF]
        raw >>= 14
    return out + _LAST[raw]


ZIGZAG: Final = tuple(_varint(number << 1) for number in range(SMALL))
"""The bytes of small numbers that are not negative: most lengths and many values."""


def long_bytes(value: int) -> bytes:
    """The varint of a 64-bit number."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise TypeError("a long is a whole number of 64 bits")
    return _large((value << 1) ^ (value >> 63))


def int_bytes(value: int) -> bytes:
    """The varint of a 32-bit number."""
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise TypeError("an int is a whole number of 32 bits")
    return _large((value << 1) ^ (value >> 63))


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """A varint of up to ten bytes, and the position after it."""
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw = byte & 0x7F
    byte = data[pos + 1]
    if byte < 0x80:
        raw |= byte << 7
        return (raw >> 1) ^ -(raw & 1), pos + 2
    raw |= (byte & 0x7F) << 7
    byte = data[pos + 2]
    if byte < 0x80:
        raw |= byte << 14
        return (raw >> 1) ^ -(raw & 1), pos + 3
    raw |= (byte & 0x7F) << 14
    pos += 3
    shift = 21
    while True:
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than ten bytes")


def block_count(data: bytes, pos: int, least: int) -> tuple[int, int]:
    """The items of the next block of an array or map, each of at least so many bytes."""
    count, pos = read_long(data, pos)
    if count < 0:
        _, pos = read_long(data, pos)
        count = -count
    if count > ((len(data) - pos) // least if least else MAX_EMPTY_ITEMS):
        raise ValueError(f"a block claims {count} items, more than its bytes can hold")
    return count, pos


def bad_length() -> ValueError:
    return ValueError("a length leads beyond the end of the record")


# -- logical types


def from_date(value: object) -> object:
    return value.toordinal() - _EPOCH_DAY if isinstance(value, dt.date) else value


def to_date(value: int) -> dt.date:
    return dt.date.fromordinal(value + _EPOCH_DAY)


def _micros(value: object) -> int | None:
    if not isinstance(value, dt.datetime):
        return None
    return (value - (_NAIVE_EPOCH if value.tzinfo is None else _EPOCH)) // _MICROSECOND


def from_timestamp_micros(value: object) -> object:
    found = _micros(value)
    return value if found is None else found


def from_timestamp_millis(value: object) -> object:
    found = _micros(value)
    return value if found is None else found // 1000


def to_timestamp_micros(value: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=value)


def to_timestamp_millis(value: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=value)


def to_local_micros(value: int) -> dt.datetime:
    return _NAIVE_EPOCH + dt.timedelta(microseconds=value)


def to_local_millis(value: int) -> dt.datetime:
    return _NAIVE_EPOCH + dt.timedelta(milliseconds=value)


def from_time_micros(value: object) -> object:
    if not isinstance(value, dt.time):
        return value
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def from_time_millis(value: object) -> object:
    found = from_time_micros(value)
    return found // 1000 if isinstance(value, dt.time) and isinstance(found, int) else found


def to_time_micros(value: int) -> dt.time:
    return (_NAIVE_EPOCH + dt.timedelta(microseconds=value)).time()


def to_time_millis(value: int) -> dt.time:
    return (_NAIVE_EPOCH + dt.timedelta(milliseconds=value)).time()


def from_uuid(value: object) -> object:
    return str(value) if isinstance(value, uuid.UUID) else value


def decimal_digits(one: AvroType) -> tuple[int, int]:
    """The precision and the scale of a decimal."""
    precision, scale = one.props.get("precision", 0), one.props.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        raise SchemaError("the precision and the scale of a decimal are whole numbers")
    if not (0 <= precision <= MAX_DIGITS and 0 <= scale <= MAX_DIGITS):
        raise SchemaError(f"the precision and the scale of a decimal are at most {MAX_DIGITS}")
    return precision, scale


def decimal_functions(one: AvroType) -> tuple[ToRaw, FromRaw]:
    """The two directions of a decimal: by its precision and scale, and by its size if it is fixed."""
    precision, scale = decimal_digits(one)
    size = one.size if one.kind == "fixed" else 0
    context = decimal.Context(prec=max(precision, 1) + 2)

    def encode(value: object) -> object:
        if not isinstance(value, decimal.Decimal):
            return value
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or -exponent > scale:
            raise ValueError(f"{value} has more than {scale} digits after the point")
        unscaled = int("".join(map(str, digits)) or "0") * 10 ** (exponent + scale)
        if len(str(unscaled)) > precision:
            raise ValueError(f"{value} has more than {precision} digits")
        unscaled = -unscaled if sign else unscaled
        length = size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(length, "big", signed=True)

    def decode(value: bytes) -> decimal.Decimal:
        return decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, context)

    return encode, decode


_LOGICAL: Final[Mapping[tuple[str, str], tuple[ToRaw, FromRaw]]] = {
    ("int", "date"): (from_date, to_date),
    ("int", "time-millis"): (from_time_millis, to_time_millis),
    ("long", "time-micros"): (from_time_micros, to_time_micros),
    ("long", "timestamp-millis"): (from_timestamp_millis, to_timestamp_millis),
    ("long", "timestamp-micros"): (from_timestamp_micros, to_timestamp_micros),
    ("long", "local-timestamp-millis"): (from_timestamp_millis, to_local_millis),
    ("long", "local-timestamp-micros"): (from_timestamp_micros, to_local_micros),
    ("string", "uuid"): (from_uuid, uuid.UUID),
}


def logical_functions(one: AvroType) -> tuple[ToRaw, FromRaw] | None:
    """The functions from and to Python's own type for a logical type; None for a plain type."""
    name = one.props.get("logicalType")
    if not isinstance(name, str):
        return None
    if name == "decimal" and one.kind in ("bytes", "fixed"):
        return decimal_functions(one)
    return _LOGICAL.get((one.kind, name))


# -- errors


Known: TypeAlias = dict[tuple[int, int], tuple[object, bool]]
"""By a branch and a value: the value, which must stay, and whether it fits."""


def explain(one: AvroType, value: object, path: str = "", known: Known | None = None) -> str | None:
    """Where and why a value does not fit a type; None where it does."""
    known = {} if known is None else known
    where = path or "the value"
    if one.kind in ("record", "error"):
        return _explain_record(one, value, path, where, known)
    if one.kind == "union":
        if type(value) is Branch:
            return explain(one.branches[value.at], value.value, path, known)
        if any(_fits(branch, value, path, known) for branch in one.branches):
            return None
        return f"{where}: {_short(value)} fits no branch of the union"
    if one.kind in ("array", "map"):
        assert one.items is not None
        pairs: Iterable[tuple[object, object]]
        if one.kind == "map" and isinstance(value, Mapping):
            pairs = value.items()
        elif one.kind == "array" and isinstance(value, list | tuple):
            pairs = enumerate(value)
        else:
            return f"{where}: {_short(value)} is not {'a dict' if one.kind == 'map' else 'a list'}"
        return next(
            (found for key, each in pairs if (found := explain(one.items, each, f"{path}[{key!r}]", known))),
            None,
        )
    return _explain_plain(one, value, where)


def _fits(branch: AvroType, value: object, path: str, known: Known) -> bool:
    """Whether a value fits a branch. Asked once for both: unions inside unions would ask again and again."""
    key = (id(branch), id(value))
    if key not in known:
        known[key] = (value, explain(branch, value, path, known) is None)
    return known[key][1]


def _explain_record(one: AvroType, value: object, path: str, where: str, known: Known) -> str | None:
    for field in one.fields:
        name = f"{path}.{field.name}" if path else field.name
        if isinstance(value, Mapping):
            if field.name not in value:
                if field.has_default:
                    continue
                return f"{name} is missing"
            each = value[field.name]
        elif hasattr(value, field.name):
            each = getattr(value, field.name)
        else:
            return f"{where}: {_short(value)} is not a {one.simple_name}"
        found = explain(field.type, each, name, known)
        if found:
            return found
    return None


def _explain_plain(one: AvroType, value: object, where: str) -> str | None:
    logical = logical_functions(one)
    try:
        raw = logical[0](value) if logical else value
    except (ValueError, TypeError, ArithmeticError) as error:
        return f"{where}: {error}"
    whole = type(raw) is int
    number = cast("int", raw) if whole else 0
    fits = {
        "null": raw is None,
        "boolean": isinstance(raw, bool),
        "int": whole and -(1 << 31) <= number < 1 << 31,
        "long": whole and -(1 << 63) <= number < 1 << 63,
        "float": isinstance(raw, int | float),
        "double": isinstance(raw, int | float),
        "string": isinstance(raw, str),
        "bytes": isinstance(raw, bytes | bytearray | memoryview),
        "enum": raw in one.symbols,
        "fixed": isinstance(raw, bytes | bytearray) and len(raw) == one.size,
    }[one.kind]
    return None if fits else f"{where}: {_short(value)} is not a value of the type {one.name or one.kind}"


def refuse(one: AvroType, value: object, error: Exception) -> InvalidData:
    """The error for a value that could not be written."""
    return InvalidData(explain(one, value) or f"the value does not fit its schema: {error}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
