"""Records of Kafka's own topics as text: what kafka-console-consumer prints with the formatters made for them.

Kafka's tool writes the JSON of one record right behind that of the last. So do we where a program reads along; at
a terminal and with `--json` each has a line of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.cli.tools.decoders import read_coordinator_record
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.message_json import as_text
from ottla.cli.tools.remote_log_metadata import metadata_text
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineMessage

_REMOTE: Final = "RemoteLogMetadataFormatter"
_TOOLS: Final = "org.apache.kafka.tools.consumer."
INTERNAL: Final = {
    "GroupMetadataMessageFormatter": _TOOLS,
    "OffsetsMessageFormatter": _TOOLS,
    "ShareGroupMessageFormatter": _TOOLS,
    "ShareGroupStateMessageFormatter": f"{_TOOLS}group.share.",
    "TransactionLogMessageFormatter": _TOOLS,
    _REMOTE: "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde$",
}
"""The formatters, and where Kafka has them."""
ENCLOSING: Final = frozenset({"GroupMetadataManager", "TransactionLog", "RemoteLogMetadataSerde"})
"""Classes around formatters, now or once: what is left of a name whose end a shell took for a variable."""

_GROUPS: Final = "kafka-group-coordinator"
_READ: Final[dict[str, tuple[str, range | None]]] = {
    "GroupMetadataMessageFormatter": (_GROUPS, range(2, 3)),
    "OffsetsMessageFormatter": (_GROUPS, range(2)),
    "ShareGroupMessageFormatter": (_GROUPS, range(10, 16)),
    "ShareGroupStateMessageFormatter": ("kafka-share-coordinator", None),
    "TransactionLogMessageFormatter": ("kafka-transaction-coordinator", None),
}
"""Whose records each shows, and of which types; None is all."""


def internal_formatter(kind: str, as_json: bool) -> CoordinatorFormatter | RemoteLogFormatter:
    """One of `INTERNAL`."""
    if kind == _REMOTE:
        return RemoteLogFormatter(as_json)
    module, kinds = _READ[kind]
    return CoordinatorFormatter(module, kinds, b"\n" if as_json or sys.stdout.isatty() else b"")


@dataclass(slots=True, frozen=True)
class CoordinatorFormatter:
    """Key and value of a coordinator's records as JSON; nothing for types that are unknown or not asked for."""

    module: str
    kinds: range | None
    line_end: bytes = b""

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes:
        key = record.key()
        if key is None:
            return b""
        try:
            # All of it is read before its type is looked at: Kafka's tool ends at a damaged record of any type.
            found = read_coordinator_record(self.module, key, record.value())
        except ApiException as error:
            raise _unreadable(record, error) from error
        if found is None or (self.kinds is not None and found.kind not in self.kinds):
            return b""
        value = None if found.value is None else {"version": found.version, "data": found.value}
        document = {"key": {"type": found.kind, "data": found.key}, "value": value}
        return as_text(document).encode() + self.line_end


@dataclass(slots=True, frozen=True)
class RemoteLogFormatter:
    """Tiered storage's metadata of segments, one line each."""

    as_json: bool = False

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes:
        try:
            value = metadata_text(record.value())
        except ApiException as error:
            raise _unreadable(record, error) from error
        if self.as_json:
            document = {"partition": record.partition(), "offset": record.offset(), "value": value}
            return as_text(document).encode() + b"\n"
        return f"partition: {record.partition()}, offset: {record.offset()}, value: {value}\n".encode()


def _unreadable(record: EngineMessage, error: ApiException) -> UsageProblem:
    why = error.message.rstrip(".")
    return UsageProblem(
        f"could not read the record at offset {record.offset()} of partition {record.partition()}: {why}"
    )
