"""Names as Kafka Streams gives them, and what streams and tables share: their node, their serdes, their builder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ottla.streams.graph.operators import Gate, Operator, Sink, Source, Store
from ottla.streams.graph.topology import Topology
from ottla.streams.serdes import Serde

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_REPARTITION = "-repartition"


class Wiring:
    """One topology under construction, and the counter behind generated names."""

    def __init__(self) -> None:
        self.topology = Topology()
        self._next_index = 0

    def processor_name(self, prefix: str) -> str:
        name = f"{prefix}{self._next_index:010d}"
        self._next_index += 1
        return name

    def store_name(self, prefix: str) -> str:
        return self.processor_name(f"{prefix}STATE-STORE-")

    def named(self, name: str | None, prefix: str) -> str:
        """A number is used up also where a name is given: naming one operator must not rename the others."""
        generated = self.processor_name(prefix)
        return generated if name is None else name

    def suffixed(self, name: str | None, suffix: str, prefix: str) -> str:
        return self.named(None if name is None else f"{name}{suffix}", prefix)

    def add(self, name: str, operator: Operator, *parents: str, stores: tuple[str, ...] = ()) -> str:
        return self.topology.add(name, operator, parents, stores).name

    def add_store(self, store: Store) -> str:
        return self.topology.add_store(store).name


@dataclass(slots=True)
class Repartition:
    """Where a stream continues after its records were sent to the tasks of their new keys."""

    source: str
    topic: str


def repartition(
    wiring: Wiring,
    parent: str,
    prefix: str,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    *,
    partitions: int | None = None,
    reuse: Repartition | None = None,
) -> Repartition:
    """Adds the way through an internal topic; with `reuse` only the names are used up, as Kafka Streams does."""
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


class Flow:
    """What streams and tables have in common."""

    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        self._wiring = wiring
        self._node = node
        self._key_serde = key_serde
        self._value_serde = value_serde

    @property
    def name(self) -> str:
        """The name of the operator this comes out of."""
        return self._node
