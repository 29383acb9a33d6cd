"""Kafka Streams' DSL in Python: build a topology, test it in plain Python, run it on Spark.

The examples of this package run as they stand after `from ottla.streams import *`.

`StreamsApp` needs Spark (`pip install ottla[spark]`) and is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.dsl.branched import BranchedKStream
from ottla.streams.dsl.builder import StreamsBuilder
from ottla.streams.dsl.cogrouped import CogroupedKStream, WindowedCogroupedKStream
from ottla.streams.dsl.global_ktable import GlobalKTable
from ottla.streams.dsl.grouped import KGroupedStream, KGroupedTable
from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.ktable import KTable
from ottla.streams.dsl.windowed import WindowedKStream
from ottla.streams.errors import ProcessingError, SerializationError, StreamsError, TopologyError
from ottla.streams.expressions import Expression, col, lit, struct
from ottla.streams.graph.topology import Topology
from ottla.streams.interpreter.context import Processor, ProcessorContext, PunctuationType, RecordMetadata
from ottla.streams.interpreter.driver import TopologyTestDriver
from ottla.streams.interpreter.stores import KeyValueStore
from ottla.streams.records import Change, Record, ValueAndTimestamp, Window, Windowed
from ottla.streams.serdes import Serde
from ottla.streams.settings import StreamsSettings
from ottla.streams.windows import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Suppressed,
    TimeWindows,
    hopping,
    session,
    sliding,
    tumbling,
    until_time_limit,
    until_window_closes,
)

if TYPE_CHECKING:
    from ottla.streams.runner import StreamsApp

__all__ = [
    "BranchedKStream",
    "Change",
    "CogroupedKStream",
    "Expression",
    "GlobalKTable",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Record",
    "RecordMetadata",
    "Serde",
    "SerializationError",
    "SessionWindows",
    "SlidingWindows",
    "StreamsApp",
    "StreamsBuilder",
    "StreamsError",
    "StreamsSettings",
    "Suppressed",
    "TimeWindows",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "ValueAndTimestamp",
    "Window",
    "Windowed",
    "WindowedCogroupedKStream",
    "WindowedKStream",
    "col",
    "hopping",
    "lit",
    "session",
    "sliding",
    "struct",
    "tumbling",
    "until_time_limit",
    "until_window_closes",
]


def __getattr__(name: str) -> object:
    if name == "StreamsApp":
        from ottla.streams.runner import StreamsApp

        return StreamsApp
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
