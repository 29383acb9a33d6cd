"""Columns of plain values as the texts that Java gives them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.data.columns import Column
from ottla.connect.data.java_text import PLAIN_BELOW, PLAIN_FROM, java_double
from ottla.connect.data.schema import BOUNDS, LOGICAL_TYPES, Schema, Type


def plain_texts(schema: Schema, column: Column) -> pa.Array | None:
    """The text of each number, truth value or text, null for null; None for columns of other values."""
    if isinstance(column, list) or schema.name in LOGICAL_TYPES:
        return None
    if schema.type in BOUNDS:
        return column.cast(pa.string())
    if schema.type is Type.STRING:
        return column.cast(pa.string())
    if schema.type is Type.BOOLEAN:
        return pc.if_else(column, "true", "false")
    return double_texts(column) if column.type == pa.float64() else None


def double_texts(column: pa.Array) -> pa.Array:
    """Java's text of each double. Between 0.001 and 10,000,000 Arrow writes the same digits without an exponent."""
    size = pc.abs(column)
    plain = pc.and_(pc.greater_equal(size, PLAIN_FROM), pc.less(size, PLAIN_BELOW))
    whole = pc.equal(pc.floor(column), column)
    texts = column.cast(pa.string())
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    others = pc.indices_nonzero(pc.invert(plain))
    if not len(others):
        return texts
    shown = pa.array([java_double(one) for one in column.take(others).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, pc.fill_null(pc.invert(plain), False), shown)
