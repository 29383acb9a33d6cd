"""A table of which every task holds all rows."""

from __future__ import annotations

from typing import Generic

from ottla.streams.type_variables import K, V


class GlobalKTable(Generic[K, V]):
    """A table of which every task holds all rows; streams join it by any key.

    >>> builder = StreamsBuilder()
    >>> cities = builder.global_table("cities")
    >>> people = builder.stream("people")
    >>> people.join(cities, lambda code, city: city, key=lambda name, code: code).to("out")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_input("cities", "Brno", key="BRQ")
    >>> driver.pipe_input("people", "BRQ", key="ann")
    >>> driver.read_all("out")
    [Record('ann', 'Brno', timestamp=0)]
    """

    def __init__(self, store: str) -> None:
        self.store = store
