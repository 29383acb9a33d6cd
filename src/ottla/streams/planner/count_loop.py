"""A chain of functions from a topic to a count, compiled into one Python loop.

There is no loop for a chain that it could not run exactly as the interpreter does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn, cast

from ottla.streams.expressions import Expression
from ottla.streams.functions import Function, positional_arity
from ottla.streams.graph import operators as op
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.keys import encode_key
from ottla.streams.records import Record
from ottla.streams.type_variables import Unknown

Name = str | bytes
"""The key of a count: the key itself if it is text, else its bytes."""

CountLoop = Callable[[list[object], list[object], list[int], dict[Name, int], dict[Name, int]], None]
"""Takes keys, values and times in ascending order, and adds to the counts and latest times of each name."""


class _NoLoop(Exception):
    """Something in the chain needs the interpreter."""


@dataclass(slots=True)
class _Loop:
    """The lines of the loop so far. Each step has variables of its own, so that no step sees those of a later one."""

    lines: list[str] = field(default_factory=list)
    functions: dict[str, object] = field(default_factory=dict)
    depth: int = 2
    key: str = "k0"
    value: str = "v0"
    steps: int = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def inside(self, line: str) -> None:
        self.add(line)
        self.depth += 1

    def fresh(self) -> int:
        self.steps += 1
        return self.steps

    def call(self, function: Function) -> str:
        """The code that calls a user's function for the record at hand."""
        name = f"f{len(self.functions)}"
        if function.expression is not None:
            self.functions[name] = function.expression.evaluate
            return f"{name}(Record({self.key}, {self.value}, t))"
        given = function.given
        assert not isinstance(given, Expression)
        self.functions[name] = given
        arguments = f"{self.key}, {self.value}" if positional_arity(given) == 2 else self.value
        return f"{name}({arguments})"


def _filter(loop: _Loop, operator: op.Filter) -> None:
    call = loop.call(operator.predicate)
    if operator.negate:
        held = f"h{loop.fresh()}"
        loop.add(f"{held} = {call}")
        loop.inside(f"if {held} is not None and not {held}:")
    else:
        loop.inside(f"if {call}:")


def _map_values(loop: _Loop, operator: op.MapValues) -> None:
    value = f"v{loop.fresh()}"
    loop.add(f"{value} = {loop.call(operator.mapper)}")
    loop.value = value


def _select_key(loop: _Loop, operator: op.SelectKey) -> None:
    key = f"k{loop.fresh()}"
    loop.add(f"{key} = {loop.call(operator.mapper)}")
    loop.key = key


def _map(loop: _Loop, operator: op.Map) -> None:
    step = loop.fresh()
    loop.add(f"k{step}, v{step} = {loop.call(operator.mapper)}")
    loop.key, loop.value = f"k{step}", f"v{step}"


def _flat_map(loop: _Loop, operator: op.FlatMap) -> None:
    step = loop.fresh()
    loop.inside(f"for k{step}, v{step} in {loop.call(operator.mapper)}:")
    loop.key, loop.value = f"k{step}", f"v{step}"


def _flat_map_values(loop: _Loop, operator: op.FlatMapValues) -> None:
    value = f"v{loop.fresh()}"
    loop.inside(f"for {value} in {loop.call(operator.mapper)}:")
    loop.value = value


def _gate(loop: _Loop, operator: op.Gate) -> None:
    if not operator.keeps_null_keys:
        loop.inside(f"if {loop.key} is not None:")


def _nothing(loop: _Loop, operator: op.PassThrough) -> None:
    """The record does not change."""


_STEPS: Final[dict[type, Callable[[_Loop, Unknown], None]]] = {
    op.Filter: _filter,
    op.MapValues: _map_values,
    op.SelectKey: _select_key,
    op.Map: _map,
    op.FlatMap: _flat_map,
    op.FlatMapValues: _flat_map_values,
    op.Gate: _gate,
    op.PassThrough: _nothing,
}


def count_loop(source: Node, stops: frozenset[str]) -> CountLoop | None:
    """The loop from a source to the first node whose name is in `stops`; None where the chain branches."""
    loop = _Loop()
    node = source
    try:
        while True:
            (node,) = node.children if len(node.children) == 1 else _no_loop()
            if node.name in stops:
                return _compiled(loop)
            step = _STEPS.get(type(node.operator)) or _no_loop()
            step(loop, node.operator)
    except _NoLoop:
        return None


def _no_loop() -> NoReturn:
    raise _NoLoop


def _compiled(loop: _Loop) -> CountLoop:
    key = loop.key
    loop.inside(f"if {key} is not None and {loop.value} is not None:")
    loop.add(f"name = {key} if {key}.__class__ is str else encode_key({key})")
    loop.add("counts[name] = known(name, 0) + 1")
    loop.add("latest[name] = t")
    code = "\n".join(
        (
            "def count(keys, values, times, counts, latest):",
            "    known = counts.get",
            "    for k0, v0, t in zip(keys, values, times):",
            *loop.lines,
        )
    )
    names: dict[str, object] = {**loop.functions, "encode_key": encode_key, "Record": Record}
    exec(compile(code, "<count loop>", "exec"), names)
    return cast("CountLoop", names["count"])
