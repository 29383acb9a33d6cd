"""What Spark's functions of all formats share: Arrow functions, caches of a worker, and the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from ottla.schemas import frames
from ottla.schemas.avro_decode import DAMAGED, reason
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.values import Decode, Value

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

Mode = Literal["failfast", "permissive"]
T = TypeVar("T")

_CACHED: Final[dict[tuple[object, ...], Value]] = {}
"""Decoders of this Python worker: Spark sends a function again with every task."""
_MAX_CACHED: Final = 10_000
MAX_COLUMN_TYPES: Final = 10_000
MAX_COLUMN_DEPTH: Final = 100


def cached(key: tuple[object, ...], make: Callable[[], T]) -> T:
    """What this worker made before for a key, or makes now."""
    found: T | None = _CACHED.get(key)
    if found is None:
        if len(_CACHED) >= _MAX_CACHED:
            _CACHED.clear()
        found = _CACHED[key] = make()
    return found


def too_many_columns() -> SchemaError:
    """The error of a schema that has more types than a column can."""
    return SchemaError(
        f"the schema has more than {MAX_COLUMN_TYPES} types or {MAX_COLUMN_DEPTH} levels, with each use of a type"
        " counted"
    )


def check_mode(mode: str) -> bool:
    """Whether a mode passes over records that cannot be read."""
    if mode not in ("failfast", "permissive"):
        raise SchemaError(f"there is no mode {mode!r}: use 'failfast' or 'permissive'")
    return mode == "permissive"


def arrow_function(
    function: Callable[[pa.Array], pa.Array], kind: DataType | str
) -> Callable[[Column | str], Column]:
    """A function of Arrow arrays for columns."""
    import pyarrow as pa
    from pyspark.sql import functions

    function.__annotations__ = {"values": pa.Array, "return": pa.Array}
    # It is missing in the types of the package.
    make: Callable[..., Callable[[Column | str], Column]] = getattr(functions, "arrow_udf")  # noqa: B009
    return make(function, returnType=kind)


def read_rows(
    values: pa.Array,
    decoders: dict[bytes, Decode],
    make: Callable[[int], Decode],
    *,
    permissive: bool,
) -> list[Value]:
    """The records of a batch, each read with the schema that its first five bytes name."""
    given: list[bytes | None] = values.to_pylist()
    only = decoders.get(_only_prefix(values, given))
    if only is not None:
        try:
            return [only(data, 5) for data in given]  # type: ignore[arg-type]
        except DAMAGED:
            # The slower way says which record it is.
            pass
    rows: list[Value] = []
    known = decoders.get
    for data in given:
        if data is None:
            rows.append(None)
            continue
        try:
            decode = known(data[:5])
            if decode is None:
                decode = decoders[data[:5]] = make(frames.check_prefix(data))
            rows.append(decode(data, 5))
        except DAMAGED as error:
            if getattr(error, "says_nothing_about_the_record", False):
                # No registry answers, or the schema has rules: null would lose a record that may be sound.
                raise
            if not permissive:
                raise unreadable(data, error) from None
            rows.append(None)
    return rows


def unreadable(data: bytes, error: Exception) -> InvalidData:
    """The error of a record that cannot be read, with its schema id."""
    schema_id = frames.schema_id_of(data)
    return InvalidData(f"a record with the schema id {schema_id} cannot be read: {reason(error)}", schema_id)


def _only_prefix(values: pa.Array, given: list[bytes | None]) -> bytes:
    """The first five bytes of a batch, if all its records have the same."""
    import pyarrow.compute as pc

    first = given[0] if given and not values.null_count else None
    if first is None or len(first) < 5:
        return b""
    return first[:5] if pc.all(pc.starts_with(values, first[:5])).as_py() else b""


def array_of(rows: list[Value], kind: pa.DataType, *, permissive: bool) -> pa.Array:
    """Rows of plain values as an Arrow array; what does not fit is null where that is allowed."""
    import pyarrow as pa

    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if not permissive:
            raise InvalidData(f"a record does not fit the type of the column: {error}") from None
    fitting = []
    for row in rows:
        try:
            pa.array([row], kind)
            fitting.append(row)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            fitting.append(None)
    return pa.array(fitting, kind)
