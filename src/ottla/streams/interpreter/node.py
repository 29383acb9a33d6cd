"""The base of the processors of all operators: their node, their stores, and how they pass records on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ottla.streams.graph.operators import Operator
from ottla.streams.graph.topology import Node
from ottla.streams.records import Record

if TYPE_CHECKING:
    from ottla.streams.interpreter.task import Task

Handler = Callable[[Record], None]
O = TypeVar("O", bound=Operator, covariant=True)  # noqa: E741
S = TypeVar("S")


class NodeProcessor(Generic[O]):
    """Processes the records of one node; `scalars` names the attributes that are kept between batches."""

    scalars: tuple[str, ...] = ()

    def __init__(self, node: Node, task: Task, known: Mapping[str, NodeProcessor[Operator]]) -> None:
        self.node = node
        self.task = task
        self.operator: O = cast("O", node.operator)
        self._children: dict[str, Handler] = {
            child.name: known[child.name].process if child.name in known else _leave(task, child)
            for child in node.children
        }
        handlers = list(self._children.values())
        self.forward: Handler = handlers[0] if len(handlers) == 1 else _to_all(handlers)

    def store_of(self, name: str, kind: type[S]) -> S:
        """The task's store of a name, which is of a known class."""
        store = self.task.stores[name]
        assert isinstance(store, kind), f"{self.node.name}: {name} is a {type(store).__name__}"
        return store

    def open(self) -> None:
        """Called once, when the task's state is in place."""

    def process(self, record: Record) -> None:
        """Called for each record; passes it on unless it is overridden."""
        self.forward(record)

    def flush(self) -> None:
        """Called at the end of a batch."""

    def close(self) -> None:
        """Called when the task ends."""


AnyProcessor = NodeProcessor[Operator]


def _to_all(handlers: list[Handler]) -> Handler:
    def forward(record: Record) -> None:
        for handler in handlers:
            handler(record)

    return forward


def _leave(task: Task, node: Node) -> Handler:
    def leave(record: Record) -> None:
        task.emit(node, record)

    return leave
