"""The data pipeline on Apache Spark: the session, the reader, the exactly-once sink, group offsets, the DStream source.

A pipeline is a client: it reaches a broker over the wire only. Spark itself is an extra (`pip install ottla[spark]`)
and is loaded when one of these names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.pipeline.offsets import track_lag
    from ottla.pipeline.reader import register_reader
    from ottla.pipeline.session import spark_session
    from ottla.pipeline.sink import KafkaSink, kafka_sink

__all__ = ["KafkaSink", "kafka_sink", "register_reader", "spark_session", "track_lag"]

_MODULES = {
    "KafkaSink": "ottla.pipeline.sink",
    "kafka_sink": "ottla.pipeline.sink",
    "register_reader": "ottla.pipeline.reader",
    "spark_session": "ottla.pipeline.session",
    "track_lag": "ottla.pipeline.offsets",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    return value
