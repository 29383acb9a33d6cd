"""Metadata transactions: records between Begin and End take effect together, or with Abort not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage


class TransactionFilter:
    """Holds back the records of an open transaction."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[WireMessage] | None = None

    @property
    def active(self) -> bool:
        """A transaction is open: its records have no effect yet."""
        return self._held is not None

    def feed(self, record: WireMessage) -> Sequence[WireMessage]:
        """The records that take effect when this one is read, in log order."""
        name = record.NAME
        if name == "BeginTransactionRecord":
            if self._held is not None:
                raise _misplaced(name, "inside a metadata transaction")
            self._held = []
            return ()
        if name in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._held is None:
                raise _misplaced(name, "outside a metadata transaction")
            held, self._held = self._held, None
            return held if name == "EndTransactionRecord" else ()
        if self._held is not None:
            self._held.append(record)
            return ()
        return (record,)


def _misplaced(name: str, where: str) -> ApiException:
    return ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata log has a {name} {where}")
