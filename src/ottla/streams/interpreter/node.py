"""What the processors of all operators share: where they are, and how they hand records on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.streams.graph.topology import Node
from ottla.streams.records import Record

if TYPE_CHECKING:
    from ottla.streams.interpreter.task import Task

Handler = Callable[[Record], None]


class NodeProcessor:
    """`scalars` names the attributes that must survive between batches."""

    scalars: tuple[str, ...] = ()

    def __init__(self, node: Node, task: Task, known: Mapping[str, NodeProcessor]) -> None:
        self.node = node
        self.task = task
        self.operator: Any = node.operator
        self._children: dict[str, Handler] = {
            child.name: known[child.name].process if child.name in known else _leave(task, child)
            for child in node.children
        }
        handlers = list(self._children.values())
        self.forward: Handler = handlers[0] if len(handlers) == 1 else _to_all(handlers)

    def open(self) -> None:
        """Called once, when the task's state is in place."""

    def process(self, record: Record) -> None:
        self.forward(record)

    def flush(self) -> None:
        """Called at the end of a batch."""

    def close(self) -> None:
        """Called when the task ends."""


def _to_all(handlers: list[Handler]) -> Handler:
    def forward(record: Record) -> None:
        for handler in handlers:
            handler(record)

    return forward


def _leave(task: Task, node: Node) -> Handler:
    def leave(record: Record) -> None:
        task.emit(node, record)

    return leave
