"""Unions of several types where only structs are known: a field for each type, of which one is set.

Spark's columns and Connect's data have them so, with names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.registry.avro_types import NAMED, AvroType
from ottla.schemas.errors import InvalidData, SchemaError

Names: TypeAlias = tuple[str | None, ...]
"""The names of a union's types in their order; None for null."""
Members: TypeAlias = Callable[[AvroType], Names | None]
"""Names the types of a union; None for one that is no struct."""

NUMBERS: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
"""Unions of two kinds of numbers are the larger one in Spark, as in its own reader of Avro."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A value of a union, with the number of its type."""

    at: int
    value: object


def types_of(one: AvroType) -> list[AvroType]:
    """The types of a union beside null."""
    return [branch for branch in one.branches if branch.kind != "null"]


def spark_members(one: AvroType) -> Names | None:
    """`member0`, `member1` and so on, as Spark's own reader of Avro names them."""
    others = types_of(one)
    if len(others) < 2 or frozenset(branch.kind for branch in others) in NUMBERS:
        return None
    numbers = {id(branch): number for number, branch in enumerate(others)}
    return tuple(f"member{numbers[id(branch)]}" if id(branch) in numbers else None for branch in one.branches)


def connect_members(one: AvroType) -> Names | None:
    """The names that Confluent's converter gives: of the type, or of its kind where it has none."""
    others = types_of(one)
    if len(others) < 2:
        return None
    names = [branch.simple_name if branch.kind in NAMED else branch.kind for branch in others]
    if len(set(names)) < len(names):
        raise SchemaError(f"a union has two types of the name {max(names, key=names.count)}")
    named = iter(names)
    return tuple(None if branch.kind == "null" else next(named) for branch in one.branches)


def has_structs(root: AvroType, members: Members) -> bool:
    """Whether a type has a union somewhere that is a struct."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one.kind == "union" and members(one) is not None:
            return True
        waiting += [*(field.type for field in one.fields), *one.branches]
        if one.items is not None:
            waiting.append(one.items)
    return False


def branches_of(one: AvroType, value: object, members: Members) -> object:
    """A value with structs in place of unions as the encoder takes it. What has another form stays as it is."""
    if one.kind == "union":
        names = members(one)
        if names is not None and isinstance(value, Mapping):
            return _branch(one, names, value, members)
        others = types_of(one)
        return branches_of(others[0], value, members) if names is None and len(others) == 1 else value
    if one.kind in ("record", "error") and isinstance(value, Mapping):
        types = {field.name: field.type for field in one.fields}
        return {
            name: branches_of(types[name], each, members) if name in types else each
            for name, each in value.items()
        }
    if one.kind == "array" and isinstance(value, list) and one.items is not None:
        return [branches_of(one.items, each, members) for each in value]
    if one.kind == "map" and isinstance(value, Mapping) and one.items is not None:
        return {key: branches_of(one.items, each, members) for key, each in value.items()}
    return value


def _branch(one: AvroType, names: Names, value: Mapping[str, object], members: Members) -> object:
    given = [at for at, name in enumerate(names) if name is not None and value.get(name) is not None]
    if len(given) == 1:
        at = given[0]
        return Branch(at, branches_of(one.branches[at], value[str(names[at])], members))
    if not given and None in names:
        return None
    listed = ", ".join(name for name in names if name is not None)
    raise InvalidData(f"a union has {len(given) or 'none'} of its fields {listed} set, and takes one")
