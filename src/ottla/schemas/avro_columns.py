"""Reads a batch of Avro records column by column with NumPy: each step takes one field of all the records.

It leaves what is rare to the decoder of single records (`avro_decode`): a record that is damaged, a block with its
size, a few very long arrays. `Unusual` says so, and nothing of the batch was taken then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.registry.avro_types import AvroType
from ottla.schemas.avro_decode import branch_for, default_of, field_sources, least_bytes, symbols_read
from ottla.schemas.avro_unions import types_of
from ottla.schemas.frames import MAGIC, PREFIX_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

PADDING: Final = 16
"""Bytes after the last record, so that a look at a number's ten bytes never leaves the buffer."""
MIN_BATCH: Final = 32
"""Below this number, single records are as fast."""
_MAX_TYPES: Final = 1_000
_MAX_DEPTH: Final = 20
_ITEMS_A_ROUND: Final = 64
"""Arrays are read one item of all records at a time. Below this mean, single records are faster."""
_LONG_TEXT: Final = 64
"""From this mean length on, texts are copied one by one and not byte by byte."""


class Unusual(Exception):
    """A batch that has to be read record by record."""


class Unsupported(Exception):
    """A pair of schemas that has to be read record by record."""


class Cursor:
    """A position in each of some records: `at` moves on, `end` is where a record ends."""

    def __init__(self, data: Bytes, at: Longs, end: Longs) -> None:
        self.data = data
        self.at = at
        self.end = end
        self._words = np.ndarray((len(data) - 9,), "<u8", data, strides=(1,))

    def __len__(self) -> int:
        return len(self.at)

    def some(self, rows: Longs) -> Cursor:
        return Cursor(self.data, self.at[rows], self.end[rows])

    def moved(self) -> None:
        if (self.at > self.end).any():
            raise Unusual

    def fixed(self, kind: str, size: int) -> npt.NDArray[np.generic]:
        """A value of so many bytes of each record, as a NumPy type."""
        found = np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))[self.at]
        self.at += size
        self.moved()
        return found

    def numbers(self) -> Longs:
        """A varint of each record."""
        first = self.data[self.at]
        if first.max(initial=0) < 128:
            self.at += 1
            self.moved()
            return _zigzag(first.astype(np.uint64))
        words = self._words[self.at]
        # The lowest bit that is not set among the highest bits of eight bytes ends the number.
        stops = ~words & np.uint64(0x8080808080808080)
        stop = stops & -stops
        raw = words & (stop - np.uint64(1)) & np.uint64(0x7F7F7F7F7F7F7F7F)
        raw = raw & np.uint64(0x007F007F007F007F) | (raw & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)
        raw = raw & np.uint64(0x00003FFF00003FFF) | (raw & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
        raw = raw & np.uint64(0x000000000FFFFFFF) | (raw & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
        # The stop of byte k, times this, has k in its highest byte.
        last = ((stop >> np.uint64(7)) * np.uint64(0x0001020304050607)) >> np.uint64(56)
        if not stop.all():
            self._long(np.flatnonzero(stop == 0), raw, last)
        self.at += last.astype(np.int64) + 1
        self.moved()
        return _zigzag(raw)

    def _long(self, rows: Longs, raw: npt.NDArray[np.uint64], last: npt.NDArray[np.uint64]) -> None:
        """Numbers of nine and ten bytes: the first eight are in `raw`."""
        ninth = self.data[self.at[rows] + 8].astype(np.uint64)
        tenth = self.data[self.at[rows] + 9].astype(np.uint64)
        ten = ninth > 127
        if (tenth[ten] > 1).any():
            raise Unusual
        raw[rows] |= (ninth & np.uint64(127)) << np.uint64(56)
        raw[rows[ten]] |= tenth[ten] << np.uint64(63)
        last[rows] = np.uint64(8) + ten

    def slices(self) -> tuple[Longs, Longs]:
        """Where a text of each record starts, and its length."""
        lengths = self.numbers()
        if (lengths < 0).any() or (lengths > self.end - self.at).any():
            raise Unusual
        starts = self.at.copy()
        self.at += lengths
        return starts, lengths


def _zigzag(raw: npt.NDArray[np.uint64]) -> Longs:
    return (raw >> np.uint64(1) ^ -(raw & np.uint64(1))).view(np.int64)


class Plan(Protocol):
    """How a value of a writer's type is read into a reader's."""

    def read(self, cursor: Cursor) -> pa.Array: ...


def plan(writer: AvroType, reader: AvroType, kind: pa.DataType) -> Plan:
    """The plan for a pair of types that agree, into an Arrow type. Unsupported where there is none."""
    return _Planner().plan(writer, reader, kind, 0)


class _Planner:
    def __init__(self) -> None:
        self._left = _MAX_TYPES

    def plan(self, writer: AvroType, reader: AvroType, kind: pa.DataType, depth: int) -> Plan:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise Unsupported
        if reader.kind == "union" and len(types_of(reader)) > 1:
            raise Unsupported
        if writer.kind == "union":
            return self._union(writer, reader, kind, depth)
        if reader.kind == "union":
            reader = branch_for(reader, writer)
        match writer.kind:
            case "record" | "error":
                return self._record(writer, reader, kind, depth)
            case "array":
                assert writer.items is not None and reader.items is not None
                items = self.plan(writer.items, reader.items, kind.value_type, depth + 1)
                return _List(items, kind, least_bytes(writer.items))
            case "map":
                assert writer.items is not None and reader.items is not None
                items = self.plan(writer.items, reader.items, kind.item_type, depth + 1)
                return _Map(items, kind)
            case "enum":
                return _Enum(writer, reader)
            case "boolean" | "float" | "double" | "int" | "long":
                return _Number(writer.kind, kind)
            case "string" | "bytes" | "fixed":
                return _text(writer, reader, kind)
        raise Unsupported

    def _union(self, writer: AvroType, reader: AvroType, kind: pa.DataType, depth: int) -> Plan:
        others = [at for at, branch in enumerate(writer.branches) if branch.kind != "null"]
        if len(others) != 1:
            raise Unsupported
        value = self.plan(writer.branches[others[0]], reader, kind, depth + 1)
        return _Nullable(value, others[0], len(writer.branches))

    def _record(self, writer: AvroType, reader: AvroType, kind: pa.DataType, depth: int) -> Plan:
        from ottla.schemas.spark import arrow_type

        places = {field.name: at for at, field in enumerate(reader.fields)}
        wanted = field_sources(writer, reader)
        steps: list[tuple[Plan, int | None]] = []
        for field in writer.fields:
            target = wanted.get(field.name)
            if target is None:
                step = self.plan(field.type, field.type, arrow_type(field.type), depth + 1)
                steps.append((step, None))
            else:
                at = places[target.name]
                steps.append((self.plan(field.type, target.type, kind.field(at).type, depth + 1), at))
        read = {at for _, at in steps}
        for field in reader.fields:
            at = places[field.name]
            if at not in read:
                steps.append((_Constant(default_of(field, rows=True), kind.field(at).type), at))
        return _Record(steps, kind)


def _text(writer: AvroType, reader: AvroType, kind: pa.DataType) -> Plan:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        if writer.kind == "string":
            raise Unsupported
        return _Decimal(kind, writer.size if writer.kind == "fixed" else 0)
    if writer.kind == "fixed":
        return _Fixed(writer.size)
    return _Text(kind)


class _Number:
    _NUMPY: Final = {"int32": "<i4", "int64": "<i8", "float": "<f4", "double": "<f8"}

    def __init__(self, written: str, kind: pa.DataType) -> None:
        self._written = written
        self._kind = kind
        import pyarrow as pa

        if pa.types.is_boolean(kind):
            self._numpy = "?"
        elif pa.types.is_timestamp(kind):
            self._numpy = "<i8"
        elif pa.types.is_date32(kind):
            self._numpy = "<i4"
        else:
            self._numpy = self._NUMPY[str(kind)]

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        if self._written == "boolean":
            return pa.array(cursor.fixed("u1", 1) != 0)
        if self._written == "float":
            values = cursor.fixed("<f4", 4)
        elif self._written == "double":
            values = cursor.fixed("<f8", 8)
        else:
            values = cursor.numbers()
            if self._written == "int" and (values != values.astype(np.int32)).any():
                raise Unusual
            if self._numpy == "<f4":
                # As a number of Python goes there: by way of a double.
                values = values.astype(np.float64)
        values = np.ascontiguousarray(values, self._numpy)
        return pa.Array.from_buffers(self._kind, len(values), [None, pa.py_buffer(values)])


class _Text:
    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind

    def read(self, cursor: Cursor) -> pa.Array:
        return _texts(cursor.data, *cursor.slices(), self._kind)


class _Fixed:
    def __init__(self, size: int) -> None:
        self._size = size

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        starts = cursor.at.copy()
        cursor.at += self._size
        cursor.moved()
        return _texts(cursor.data, starts, np.full(len(starts), self._size), pa.binary())


def _texts(data: Bytes, starts: Longs, lengths: Longs, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if total >= 2**31:
        raise Unusual
    if total > _LONG_TEXT * len(starts):
        whole = data.data
        copied = b"".join(
            [whole[a:b] for a, b in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        )
        buffer = pa.py_buffer(copied)
    else:
        places = np.repeat(starts - offsets[:-1], lengths)
        places += np.arange(total)
        buffer = pa.py_buffer(data[places])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), buffer]
    found = pa.Array.from_buffers(pa.binary(), len(starts), buffers)
    try:
        return found if pa.types.is_binary(kind) else found.cast(kind)
    except pa.ArrowInvalid:
        # Not UTF-8.
        raise Unusual from None


class _Decimal:
    _BYTES: Final = 16

    def __init__(self, kind: pa.DataType, size: int) -> None:
        self._kind = kind
        self._size = size

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        if self._size:
            starts, lengths = cursor.at.copy(), np.full(len(cursor), self._size)
            cursor.at += self._size
            cursor.moved()
        else:
            starts, lengths = cursor.slices()
        if len(starts) and (lengths.min() < 1 or lengths.max() > self._BYTES):
            raise Unusual
        # The last byte first, and the sign's byte in front of the first.
        back = np.arange(self._BYTES)
        places = (starts + lengths - 1)[:, None] - back
        sign = np.where(cursor.data[starts] > 127, np.uint8(255), np.uint8(0))
        values = np.where(back < lengths[:, None], cursor.data[np.maximum(places, 0)], sign[:, None])
        buffer = pa.py_buffer(np.ascontiguousarray(values))
        found = pa.Array.from_buffers(self._kind, len(starts), [None, buffer])
        try:
            found.validate(full=True)
        except pa.ArrowInvalid:
            # More digits than the type has.
            raise Unusual from None
        return found


class _Enum:
    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        import pyarrow as pa

        known = symbols_read(writer, reader)
        self._symbols = pa.array([known.get(at) for at in range(len(writer.symbols))], pa.string())
        self._all = self._symbols.null_count == 0

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        numbers = cursor.numbers()
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self._symbols)):
            raise Unusual
        found = self._symbols.take(pa.array(numbers))
        if not self._all and found.null_count:
            raise Unusual
        return found


class _Nullable:
    """A union of null and one more type."""

    def __init__(self, value: Plan, branch: int, branches: int) -> None:
        self._value = value
        self._branch = branch
        self._branches = branches

    def read(self, cursor: Cursor) -> pa.Array:
        numbers = cursor.numbers()
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= self._branches):
            raise Unusual
        return _some_of(self._value, cursor, numbers == self._branch)


def _some_of(value: Plan, cursor: Cursor, there: Bools) -> pa.Array:
    """A column that has a value where one is there, and null elsewhere."""
    if there.all():
        return value.read(cursor)
    rows = np.flatnonzero(there)
    part = cursor.some(rows)
    found = value.read(part)
    cursor.at[rows] = part.at
    return _spread(found, there)


def _spread(found: pa.Array, there: Bools) -> pa.Array:
    """The values of a column at the places where one is there, and nulls between them."""
    import pyarrow as pa

    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


class _Record:
    def __init__(self, steps: Sequence[tuple[Plan, int | None]], kind: pa.DataType) -> None:
        self._steps = steps
        self._kind = kind
        if not kind.num_fields:
            raise Unsupported

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        columns: list[pa.Array | None] = [None] * self._kind.num_fields
        for step, at in self._steps:
            found = step.read(cursor)
            if at is not None:
                columns[at] = found
        return pa.StructArray.from_arrays(columns, fields=list(self._kind))


class _Constant:
    """The default of a field that the writer does not have."""

    def __init__(self, value: object, kind: pa.DataType) -> None:
        import pyarrow as pa

        try:
            self._one = pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise Unsupported from None

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        return self._one.take(pa.array(np.zeros(len(cursor), np.int64)))


class _Blocks:
    """The items of an array or a map, one block each."""

    def __init__(self, least: int) -> None:
        if not least:
            raise Unsupported
        self._least = least

    def read(self, cursor: Cursor, plans: Sequence[Plan]) -> tuple[Longs, list[pa.Array]]:
        """Where each record's items begin, and the items by plan, in the order of the records."""
        import pyarrow as pa

        counts = cursor.numbers()
        if (counts < 0).any() or (counts * self._least > cursor.end - cursor.at).any():
            raise Unusual
        rounds = int(counts.max(initial=0))
        offsets = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
        if total >= 2**31 or (rounds > 1 and total < rounds * _ITEMS_A_ROUND):
            raise Unusual
        order = np.empty(total, np.int64)
        parts: list[list[pa.Array]] = [[] for _ in plans]
        done = 0
        rows = np.flatnonzero(counts)
        filled = cursor.some(rows)
        for turn in range(rounds):
            active = np.flatnonzero(counts[rows] > turn)
            part = filled if len(active) == len(rows) else filled.some(active)
            for at, plan_ in enumerate(plans):
                parts[at].append(plan_.read(part))
            if part is not filled:
                filled.at[active] = part.at
            order[offsets[rows[active]] + turn] = np.arange(done, done + len(active))
            done += len(active)
        if len(rows):
            if filled.numbers().any():
                # A second block.
                raise Unusual
            cursor.at[rows] = filled.at
        columns = []
        for at, plan_ in enumerate(plans):
            arrays = parts[at] or [plan_.read(cursor.some(rows))]
            one = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
            columns.append(one if rounds < 2 else one.take(pa.array(order)))
        return offsets, columns


class _List:
    def __init__(self, items: Plan, kind: pa.DataType, least: int) -> None:
        self._items = items
        self._kind = kind
        self._blocks = _Blocks(least)

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        offsets, (items,) = self._blocks.read(cursor, [self._items])
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items, type=self._kind)


class _Map:
    def __init__(self, items: Plan, kind: pa.DataType) -> None:
        self._plans: list[Plan] = [_Text(kind.key_type), items]
        self._kind = kind
        self._blocks = _Blocks(1)

    def read(self, cursor: Cursor) -> pa.Array:
        import pyarrow as pa

        offsets, (keys, items) = self._blocks.read(cursor, self._plans)
        codes = keys.dictionary_encode()
        size = max(len(codes.dictionary), 1)
        owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        pairs = owners * size + codes.indices.to_numpy()
        if len(np.unique(pairs)) != len(pairs):
            # A key that comes twice: the last one counts.
            raise Unusual
        return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, items, type=self._kind)


# -- batches


def read_batch(values: pa.Array, plan_of: Callable[[int], Plan | None]) -> pa.Array | None:
    """A column of records with schema ids, each read by the plan of its id; None if one of them has no plan."""
    if len(values) < MIN_BATCH:
        return None
    cursor = _cursor(values)
    if not values.null_count:
        return _read_ids(cursor, plan_of)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(there)
    found = _read_ids(cursor.some(rows), plan_of) if len(rows) else None
    return None if found is None else _spread(found, there)


def _read_ids(cursor: Cursor, plan_of: Callable[[int], Plan | None]) -> pa.Array | None:
    import pyarrow as pa

    ids = _schema_ids(cursor)
    first = int(ids[0])
    if (ids == first).all():
        only = plan_of(first)
        return None if only is None else only.read(cursor)
    numbers = np.unique(ids)
    if len(ids) < len(numbers) * MIN_BATCH:
        return None
    parts, places = [], []
    for number in numbers.tolist():
        found = plan_of(number)
        if found is None:
            return None
        rows = np.flatnonzero(ids == number)
        parts.append(found.read(cursor.some(rows)))
        places.append(rows)
    back = np.empty(len(ids), np.int64)
    back[np.concatenate(places)] = np.arange(len(ids))
    return pa.concat_arrays(parts).take(pa.array(back))


def _cursor(values: pa.Array) -> Cursor:
    """A cursor over the records of an Arrow column, at their first bytes."""
    import pyarrow as pa

    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        raise Unusual
    _, places, content = values.buffers()
    size = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    offsets = np.frombuffer(places, size)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + PADDING, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(content, np.uint8)[first:last]
    offsets -= first
    return Cursor(data, offsets[:-1].copy(), offsets[1:])


def _schema_ids(cursor: Cursor) -> Longs:
    """The schema ids of records, with the cursor after them."""
    if (cursor.end - cursor.at < PREFIX_BYTES).any() or (cursor.data[cursor.at] != MAGIC).any():
        raise Unusual
    cursor.at += 1
    return cursor.fixed(">u4", 4).astype(np.int64)
