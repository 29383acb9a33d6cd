"""Nodes, edges and stores of an application, and its sub-topologies, which run apart from each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ottla.streams.errors import TopologyError
from ottla.streams.graph.describe import describe
from ottla.streams.graph.operators import (
    GlobalTableSource,
    Operator,
    Sink,
    Source,
    Store,
    StreamJoinSide,
    StreamTableJoin,
)


@dataclass(slots=True, eq=False)
class Node:
    """An operator with its neighbours and stores."""

    name: str
    operator: Operator
    parents: list[Node] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Node({self.name})"


@dataclass(slots=True)
class Subtopology:
    """Nodes that run in the same tasks."""

    id: int
    nodes: list[Node]
    is_global: bool

    @property
    def sources(self) -> list[Node]:
        """The sources among its nodes."""
        return [node for node in self.nodes if isinstance(node.operator, Source)]


class Topology:
    """A topology: nodes in the order they were added (parents before children), and state stores.

    >>> builder = StreamsBuilder()
    >>> builder.stream("in").filter(bool).to("out")
    >>> print(builder.build().describe())
    Topologies:
       Sub-topology: 0
        Source: KSTREAM-SOURCE-0000000000 (topics: [in])
          --> KSTREAM-FILTER-0000000001
        Processor: KSTREAM-FILTER-0000000001 (stores: [])
          --> KSTREAM-SINK-0000000002
          <-- KSTREAM-SOURCE-0000000000
        Sink: KSTREAM-SINK-0000000002 (topic: out)
          <-- KSTREAM-FILTER-0000000001
    <BLANKLINE>
    <BLANKLINE>
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, Store] = {}
        self._copartitioned: list[frozenset[str]] = []

    def add(
        self, name: str, operator: Operator, parents: Iterable[str] = (), stores: Iterable[str] = ()
    ) -> Node:
        """Adds a node after its parents; `StreamsBuilder` does this for you.

        >>> from ottla.streams.graph.operators import PassThrough
        >>> Topology().add("start", PassThrough())
        Node(start)
        """
        if name in self.nodes:
            raise TopologyError(f"two operators are named {name}: give one of them another name")
        node = Node(name, operator, [self.nodes[parent] for parent in parents], [], list(stores))
        for parent in node.parents:
            parent.children.append(node)
        self.nodes[name] = node
        return node

    def add_store(self, store: Store) -> Store:
        """Adds a state store.

        >>> from ottla.streams.graph.operators import Store, StoreKind
        >>> Topology().add_store(Store("counts", StoreKind.KEY_VALUE)).name
        'counts'
        """
        known = self.stores.get(store.name)
        if known is not None and known is not store:
            raise TopologyError(f"two state stores are named {store.name}: give one of them another name")
        self.stores[store.name] = store
        return store

    def connect(self, node: str, stores: Iterable[str]) -> None:
        """Gives a node access to further stores.

        >>> from ottla.streams.graph.operators import PassThrough
        >>> topology = Topology()
        >>> node = topology.add("start", PassThrough())
        >>> topology.connect("start", ["counts"])
        >>> node.stores
        ['counts']
        """
        held = self.nodes[node].stores
        held.extend(store for store in stores if store not in held)

    @property
    def sources(self) -> list[Node]:
        """All nodes that read topics, also internal ones.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> builder.build().sources
        [Node(KSTREAM-SOURCE-0000000000), Node(lengths-repartition-source)]
        """
        return [node for node in self.nodes.values() if isinstance(node.operator, Source)]

    @property
    def sinks(self) -> list[Node]:
        """All nodes that write to topics, also internal ones.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> len(builder.build().sinks)
        2
        """
        return [node for node in self.nodes.values() if isinstance(node.operator, Sink)]

    def source_topics(self) -> list[str]:
        """The topics that are read from outside, each once, in order.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> builder.build().source_topics()
        ['in']
        """
        topics = (
            topic
            for node in self.sources
            if isinstance(node.operator, Source) and not node.operator.internal
            for topic in node.operator.topics
        )
        return list(dict.fromkeys(topics))

    def repartition_topics(self, application_id: str) -> list[str]:
        """The repartition topics that Kafka Streams would create for an application.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> builder.build().repartition_topics("app")
        ['app-lengths-repartition']
        """
        return [
            f"{application_id}-{node.operator.topic}"
            for node in self.sinks
            if isinstance(node.operator, Sink) and node.operator.internal
        ]

    def changelog_topics(self, application_id: str) -> list[str]:
        """The changelog topics that Kafka Streams would create for an application.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> builder.build().changelog_topics("app")
        ['app-counts-changelog']
        """
        return [
            f"{application_id}-{store.name}-changelog"
            for store in self.stores.values()
            if store.logged and not store.global_ and self.users(store.name)
        ]

    def users(self, store: str) -> list[Node]:
        """The nodes that use a state store.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> builder.build().users("counts")
        [Node(KSTREAM-AGGREGATE-0000000002)]
        """
        return [node for node in self.nodes.values() if store in node.stores]

    def subtopologies(self) -> list[Subtopology]:
        """The groups of nodes that edges or stores hold together, numbered by their first node.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> [len(part.nodes) for part in builder.build().subtopologies()]
        [4, 4]
        """
        leaders = _Leaders(self.nodes)
        for node in self.nodes.values():
            for parent in node.parents:
                leaders.unite(parent.name, node.name)
        for name, store in self.stores.items():
            users = [] if store.global_ else self.users(name)
            for one, other in pairwise(users):
                leaders.unite(one.name, other.name)
        groups: dict[str, list[Node]] = {}
        for name, node in self.nodes.items():
            groups.setdefault(leaders.of(name), []).append(node)
        return [
            Subtopology(number, nodes, any(isinstance(node.operator, GlobalTableSource) for node in nodes))
            for number, nodes in enumerate(groups.values())
        ]

    def walk(self, start: Node) -> Iterator[Node]:
        """A node and all nodes after it, also behind internal topics, each once.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> topology = builder.build()
        >>> len(list(topology.walk(topology.sources[0])))
        8
        """
        seen: dict[str, Node] = {}
        waiting = [start]
        while waiting:
            node = waiting.pop(0)
            if node.name in seen:
                continue
            seen[node.name] = node
            waiting.extend(node.children)
            if isinstance(node.operator, Sink) and node.operator.internal:
                waiting.extend(
                    other
                    for other in self.sources
                    if isinstance(other.operator, Source) and node.operator.topic in other.operator.topics
                )
        yield from seen.values()

    def feeds_outer_join(self, start: Node) -> bool:
        """Whether a left or outer join of streams follows: those also produce results for records without a key.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(len, name="lengths").count(store="counts").to_stream().to("out")
        >>> topology = builder.build()
        >>> topology.feeds_outer_join(topology.sources[0])
        False
        """
        return any(
            (isinstance(node.operator, StreamTableJoin) and node.operator.left)
            or (isinstance(node.operator, StreamJoinSide) and node.operator.outer_store is not None)
            for node in self.walk(start)
        )

    def describe(self) -> str:
        """The text of Kafka Streams' `Topology.describe()`, character by character.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> builder.build().describe().splitlines()[1].strip()
        'Sub-topology: 0'
        """
        return describe(self)


class _Leaders:
    """Disjoint sets by name; the earliest name leads."""

    def __init__(self, names: Iterable[str]) -> None:
        self._leader = {name: name for name in names}
        self._order = {name: index for index, name in enumerate(self._leader)}

    def of(self, name: str) -> str:
        while self._leader[name] != name:
            self._leader[name] = self._leader[self._leader[name]]
            name = self._leader[name]
        return name

    def unite(self, one: str, other: str) -> None:
        first, second = sorted((self.of(one), self.of(other)), key=self._order.__getitem__)
        self._leader[second] = first
