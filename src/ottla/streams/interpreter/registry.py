"""The processor class of each operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.streams.graph import operators as op
from ottla.streams.graph.operators import Operator
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter import (
    aggregates,
    foreign_keys,
    joins,
    stateless_operators,
    suppress,
    tables,
    windowed,
)
from ottla.streams.interpreter.node import AnyProcessor, NodeProcessor

if TYPE_CHECKING:
    from ottla.streams.interpreter.task import Task

_PROCESSORS: Final[dict[type[Operator], type[AnyProcessor]]] = {
    op.Source: NodeProcessor,
    op.Sink: stateless_operators.SinkProcessor,
    op.PassThrough: NodeProcessor,
    op.Gate: stateless_operators.GateProcessor,
    op.Map: stateless_operators.MapProcessor,
    op.SelectKey: stateless_operators.SelectKeyProcessor,
    op.MapValues: stateless_operators.MapValuesProcessor,
    op.FlatMap: stateless_operators.FlatMapProcessor,
    op.FlatMapValues: stateless_operators.FlatMapValuesProcessor,
    op.Filter: stateless_operators.FilterProcessor,
    op.Peek: stateless_operators.PeekProcessor,
    op.Foreach: stateless_operators.ForeachProcessor,
    op.Print: stateless_operators.PrintProcessor,
    op.Branch: stateless_operators.BranchProcessor,
    op.Process: stateless_operators.UserProcessor,
    op.Aggregate: aggregates.AggregateProcessor,
    op.Reduce: aggregates.ReduceProcessor,
    op.TableAggregate: aggregates.TableAggregateProcessor,
    op.TableReduce: aggregates.TableReduceProcessor,
    op.WindowAggregate: windowed.WindowAggregateProcessor,
    op.SlidingAggregate: windowed.SlidingAggregateProcessor,
    op.SessionAggregate: windowed.SessionAggregateProcessor,
    op.TableSource: tables.TableSourceProcessor,
    op.GlobalTableSource: tables.GlobalTableSourceProcessor,
    op.TableReplica: tables.TableReplicaProcessor,
    op.TableFilter: tables.TableFilterProcessor,
    op.TableMapValues: tables.TableMapValuesProcessor,
    op.TableToStream: tables.TableToStreamProcessor,
    op.TableSelect: tables.TableSelectProcessor,
    op.TableJoinSide: tables.TableJoinSideProcessor,
    op.TableJoinMerge: tables.TableJoinMergeProcessor,
    op.Suppress: suppress.SuppressProcessor,
    op.JoinWindow: joins.JoinWindowProcessor,
    op.StreamJoinSide: joins.StreamJoinSideProcessor,
    op.StreamTableJoin: joins.StreamTableJoinProcessor,
    op.ForeignSend: foreign_keys.ForeignSendProcessor,
    op.ForeignReceive: foreign_keys.ForeignReceiveProcessor,
    op.ForeignLookup: foreign_keys.ForeignLookupProcessor,
    op.ForeignChanged: foreign_keys.ForeignChangedProcessor,
    op.ForeignResolve: foreign_keys.ForeignResolveProcessor,
}


def make_processor(node: Node, task: Task, known: Mapping[str, AnyProcessor]) -> AnyProcessor:
    """The processor of a node; `known` has those of the nodes after it."""
    return _PROCESSORS[type(node.operator)](node, task, known)
