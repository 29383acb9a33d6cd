"""The errors of a topology, of a running application and of a record on its way through one."""

from __future__ import annotations


class StreamsError(Exception):
    """The base of all errors that stop a streams application; the text says what to do.

    >>> from ottla.streams import StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> builder.stream("words").to("copy")
    >>> TopologyTestDriver(builder).pipe_input("lines", "hello")
    Traceback (most recent call last):
    ottla.streams.errors.StreamsError: the topology does not read lines; it reads words
    """


class TopologyError(StreamsError):
    """The topology cannot be built as it is described.

    >>> from ottla.streams import StreamsBuilder
    >>> StreamsBuilder().build()
    Traceback (most recent call last):
    ottla.streams.errors.TopologyError: the topology is empty: begin with stream(), table() or global_table()
    """


class SerializationError(StreamsError):
    """A serde cannot read some bytes, or cannot write a value.

    >>> from ottla.streams.serdes import long_serde
    >>> long_serde.deserialize(b"seven")
    Traceback (most recent call last):
    ottla.streams.errors.SerializationError: the serde long cannot read these 5 bytes: 8 bytes are expected, not 5
    """


class ProcessingError(StreamsError):
    """A function of the application failed on a record.

    >>> from ottla.streams import StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> builder.stream("in").map_values(lambda text: 1 // len(text)).to("out", value_serde=int)
    >>> TopologyTestDriver(builder).pipe_input("in", "")
    Traceback (most recent call last):
    ottla.streams.errors.ProcessingError: a record of in-0 at offset 0 failed: ZeroDivisionError: integer ...
    """
