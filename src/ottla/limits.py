"""Bounds on what one peer can make this process hold: the limits of every queue, count and buffer.

Bounds that Kafka has as configuration keys are not repeated here; these are the ones it lacks.
"""

from __future__ import annotations

from typing import Final

DECODE_AMPLIFICATION: Final = 4
"""A frame's decoded form may take this many times the frame's size ..."""

DECODE_FLOOR_BYTES: Final = 16 << 20
"""... but never less than this much, so that small frames of many small elements decode."""

RESPONSE_DECODE_AMPLIFICATION: Final = 64
"""The same factor for a client that reads a response: it has asked for it, and Metadata of a large cluster decodes to
some 15 times its size ..."""

MAX_DECODED_RESPONSE_BYTES: Final = 2 << 30
"""... up to this much."""

MAX_UNKNOWN_TAGS: Final = 64
"""Tagged fields of one struct that its schema does not know ..."""

MAX_UNKNOWN_TAG_BYTES: Final = 1 << 20
"""... and the bytes in them."""

MAX_PIPELINED_REQUESTS: Final = 64
"""Requests of one connection that may be unanswered before the broker stops reading from it."""

MAX_WRITE_BUFFER_BYTES: Final = 8 << 20
"""Response bytes that a slow reader may leave unread before the broker stops reading its requests."""

MAX_CONNECTIONS: Final = 10_000
"""Connections of one broker where `max.connections` is left at Kafka's unlimited default."""

MAX_CONNECTIONS_PER_IP: Final = 5_000
"""The same for one address and `max.connections.per.ip`."""

MAX_FAILING_ADDRESSES: Final = 10_000
"""Addresses whose failed logins are remembered."""

UNAUTHENTICATED_DECODE_BYTES: Final = 1 << 20
"""The decoded form of a request before its client has authenticated, unless the frame itself is larger."""

MAX_FETCH_PARTITIONS: Final = 100_000
"""Partitions of one fetch session."""

MAX_UNPACKED_BATCH_BYTES: Final = 128 << 20
"""Decompressed size of one batch of the broker's own log that the broker has to look into."""

MAX_UNPACKED_PRODUCE_BYTES: Final = 40 << 20
"""The same for a batch that a producer sends, unless its topic allows batches larger than this."""

MAX_RECORD_ERRORS: Final = 10_000
"""Records of one rejected batch that the response lists one by one."""

MAX_PARKED_REQUESTS: Final = 100_000
"""Requests that may wait for data or replicas at once; one more is answered as if it had timed out."""

MAX_QUEUED_APPEND_BYTES: Final = 64 << 20
"""Batches of one partition that may wait for validation before they are appended."""

MAX_BYTES_WAITING_FOR_LOGS: Final = 64 << 20
"""Records that may wait for the logs of new partitions; with more, the logs are created synchronously."""

MAX_WAITING_FOR_PRODUCER_ID: Final = 10_000
"""Producers that may wait for the controller's next block of ids."""

MAX_PEER_IN_FLIGHT: Final = 32
"""Requests to one other node on one connection that may be unanswered; more wait in a queue ..."""

MAX_PEER_QUEUE: Final = 10_000
"""... of at most this many."""

MAX_WAITING_FOR_CONTROLLER: Final = 10_000
"""Requests of one node, its clients' included, that may wait until there is an active controller."""

MAX_QUOTA_MEASURES: Final = 10_000
"""Clients, and addresses, whose use of quotas is measured at once; those that were idle longest are forgotten."""

MAX_HELD_SOCKETS: Final = 1_000
"""Connections of addresses above their rate that are held before they are closed; more are closed at once."""

MAX_TOKEN_CREDENTIALS: Final = 10_000
"""Credentials derived from delegation tokens; the oldest are derived again when they are needed."""
