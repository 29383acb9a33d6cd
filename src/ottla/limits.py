"""Bounds on what one peer can make us hold: every queue, count and buffer has its number here.

Bounds that Kafka has as configuration keys are not repeated here; these are the ones it lacks.
"""

from __future__ import annotations

from typing import Final

DECODE_AMPLIFICATION: Final = 4
"""A frame's decoded form may take this many times the frame's size ..."""

DECODE_FLOOR_BYTES: Final = 16 << 20
"""... but never less than this much, so that small frames of many small elements decode."""

MAX_PIPELINED_REQUESTS: Final = 64
"""Requests of one connection that may be unanswered before we stop reading from it."""

MAX_WRITE_BUFFER_BYTES: Final = 8 << 20
"""Response bytes a slow reader may leave with us before we stop reading its requests."""

MAX_CONNECTIONS: Final = 10_000
"""Connections of one broker where `max.connections` is left at Kafka's unlimited default."""

MAX_CONNECTIONS_PER_IP: Final = 5_000
"""The same for one address and `max.connections.per.ip`."""

MAX_FETCH_PARTITIONS: Final = 100_000
"""Partitions of one fetch session."""

MAX_UNPACKED_BATCH_BYTES: Final = 128 << 20
"""What one compressed batch of our own log may unpack to where the broker has to look inside."""

MAX_UNPACKED_PRODUCE_BYTES: Final = 40 << 20
"""The same for a batch that a producer sends, unless its topic allows batches larger than this."""

MAX_RECORD_ERRORS: Final = 10_000
"""Records of one refused batch that the answer names one by one."""

MAX_PARKED_REQUESTS: Final = 100_000
"""Requests that may wait for data or replicas at once; one more is answered as if its time was up."""

MAX_QUEUED_APPEND_BYTES: Final = 64 << 20
"""Batches of one partition that may wait to be looked into before they are appended."""

MAX_BYTES_WAITING_FOR_LOGS: Final = 64 << 20
"""Records that may wait for the logs of new partitions; with more, the logs are made at once."""

MAX_WAITING_FOR_PRODUCER_ID: Final = 10_000
"""Producers that may wait for the controller's next block of ids."""

MAX_PEER_IN_FLIGHT: Final = 32
"""Requests to one other node on one connection that may be unanswered; more wait in a queue ..."""

MAX_PEER_QUEUE: Final = 10_000
"""... of at most this many."""

MAX_WAITING_FOR_CONTROLLER: Final = 10_000
"""Requests of one node, its clients' included, that may wait until there is an active controller."""
