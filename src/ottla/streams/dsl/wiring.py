"""Names as Kafka Streams generates them, and the base of streams and tables: node, serdes, builder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic

from ottla.streams.graph.operators import Gate, Operator, Sink, Source, Store
from ottla.streams.graph.topology import Topology
from ottla.streams.serdes import AnySerde, Serde
from ottla.streams.type_variables import K, V

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_REPARTITION = "-repartition"


class Wiring:
    """One topology under construction, and the counter behind generated names."""

    def __init__(self) -> None:
        self.topology = Topology()
        self._next_index = 0

    def processor_name(self, prefix: str) -> str:
        """A generated name with the next number."""
        name = f"{prefix}{self._next_index:010d}"
        self._next_index += 1
        return name

    def store_name(self, prefix: str) -> str:
        """A generated name for a state store."""
        return self.processor_name(f"{prefix}STATE-STORE-")

    def named(self, name: str | None, prefix: str) -> str:
        """The user's name or a generated one. Both use up a number: a name for one operator does not rename others."""
        generated = self.processor_name(prefix)
        return generated if name is None else name

    def suffixed(self, name: str | None, suffix: str, prefix: str) -> str:
        """The user's name with a suffix, or a generated one."""
        return self.named(None if name is None else f"{name}{suffix}", prefix)

    def add(self, name: str, operator: Operator, *parents: str, stores: tuple[str, ...] = ()) -> str:
        """Adds a node after its parents; returns its name."""
        return self.topology.add(name, operator, parents, stores).name

    def add_store(self, store: Store) -> str:
        """Adds a state store; returns its name."""
        return self.topology.add_store(store).name


@dataclass(slots=True)
class Repartition:
    """The source after an internal topic: there a stream continues in the tasks of its new keys."""

    source: str
    topic: str


def repartition(
    wiring: Wiring,
    parent: str,
    prefix: str,
    key_serde: AnySerde | None,
    value_serde: AnySerde | None,
    *,
    partitions: int | None = None,
    reuse: Repartition | None = None,
) -> Repartition:
    """Adds the nodes of an internal topic; with `reuse` only the names are used up, as Kafka Streams does."""
    topic = prefix if prefix.endswith(_REPARTITION) else prefix + _REPARTITION
    sink = wiring.processor_name("KSTREAM-SINK-")
    gate = wiring.processor_name("KSTREAM-FILTER-")
    source = wiring.processor_name("KSTREAM-SOURCE-")
    if not _GENERATED.fullmatch(prefix):
        sink, gate, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    if reuse is not None:
        return reuse
    wiring.add(gate, Gate(), parent)
    wiring.add(sink, Sink(topic, key_serde, value_serde, internal=True, partitions=partitions), gate)
    wiring.add(source, Source((topic,), key_serde, value_serde, internal=True))
    return Repartition(source, topic)


class Flow(Generic[K, V]):
    """The base of streams and tables."""

    def __init__(
        self, wiring: Wiring, node: str, key_serde: Serde[K] | None, value_serde: Serde[V] | None
    ) -> None:
        self._wiring = wiring
        self._node = node
        self._key_serde = key_serde
        self._value_serde = value_serde

    @property
    def name(self) -> str:
        """The name of the operator that this is the output of.

        >>> StreamsBuilder().stream("in", name="reader").name
        'reader'
        """
        return self._node
