"""What can be wrong with a topology or with a record on its way through one."""

from __future__ import annotations


class StreamsError(Exception):
    """Anything that stops a streams application, with a sentence that helps."""


class TopologyError(StreamsError):
    """The topology as described cannot be built."""


class SerializationError(StreamsError):
    """Bytes that a serde cannot read, or a value it cannot write."""


class ProcessingError(StreamsError):
    """A function of the application failed on a record."""
