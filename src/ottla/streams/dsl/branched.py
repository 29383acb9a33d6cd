"""The branches of a split stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from ottla.streams.functions import Function, Predicate
from ottla.streams.graph.operators import Branch, PassThrough
from ottla.streams.type_variables import K, V

if TYPE_CHECKING:
    from ottla.streams.dsl.kstream import KStream


class BranchedKStream(Generic[K, V]):
    """The branches of a split: a record goes to the first branch whose predicate holds.

    >>> builder = StreamsBuilder()
    >>> branches = (
    ...     builder.stream("in")
    ...     .split(name="by-case-")
    ...     .branch(str.isupper, name="upper")
    ...     .default_branch(name="other")
    ... )
    >>> branches["by-case-upper"].to("loud")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_records("in", [("a", "HELLO", 0), ("b", "world", 1)])
    >>> driver.read_all("loud")
    [Record('a', 'HELLO', timestamp=0)]
    """

    def __init__(self, source: KStream[K, V], name: str | None) -> None:
        self._source = source
        self._wiring = source._wiring
        self._operator = Branch()
        self._name = self._wiring.named(name, "KSTREAM-BRANCH-")
        self._wiring.add(self._name, self._operator, source._node)
        self._branches: dict[str, KStream[K, V]] = {}

    def branch(
        self,
        predicate: Predicate[K, V],
        *,
        name: str | None = None,
        then: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> BranchedKStream[K, V]:
        """Adds a branch; `then` continues it, and the stream that it returns takes the branch's place.

        >>> builder = StreamsBuilder()
        >>> split = builder.stream("in").split()
        >>> _ = split.branch(str.isupper, then=lambda branch: branch.to("loud")).no_default_branch()
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "HELLO")
        >>> driver.read_all("loud")
        [Record(None, 'HELLO', timestamp=0)]
        """
        self._operator.predicates.append(Function(predicate))
        child = self._child(name or str(len(self._operator.predicates)), then)
        self._operator.children.append(child)
        return self

    def default_branch(
        self,
        *,
        name: str | None = None,
        then: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """Adds the branch of all other records; returns all branches by name.

        >>> split = StreamsBuilder().stream("in").split(name="case-")
        >>> sorted(split.branch(str.isupper, name="upper").default_branch(name="rest"))
        ['case-rest', 'case-upper']
        """
        self._operator.default = self._child(name or "0", then)
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drops all other records; returns all branches by name.

        >>> split = StreamsBuilder().stream("in").split(name="case-")
        >>> sorted(split.branch(str.isupper, name="upper").no_default_branch())
        ['case-upper']
        """
        return self._branches

    def _child(self, suffix: str, then: Callable[[KStream[K, V]], KStream[K, V] | None] | None) -> str:
        node = self._name + suffix
        self._wiring.processor_name(node)
        self._wiring.add(node, PassThrough(), self._name)
        source = self._source
        branch = type(source)(
            self._wiring, node, source._key_serde, source._value_serde, rekeyed=source._rekeyed
        )
        result = branch if then is None else then(branch)
        if result is not None:
            self._branches[node] = result
        return node
