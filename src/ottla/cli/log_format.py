"""The log of a node on standard error: lines for people, or one JSON object a line for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

FORMATS: Final = ("text", "json")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_FIELDS: Final = ("topic", "partition", "client", "error")


class JsonFormatter(logging.Formatter):
    """One object a line: ts, level, logger, msg, node, and topic, partition, client, error where they are known."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        entry: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
            "node": self._node_id,
        }
        entry.update(_found(record))
        if record.exc_info:
            entry.setdefault("error", str(record.exc_info[1] or ""))
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def _found(record: logging.LogRecord) -> dict[str, object]:
    """What the message is about: fields given with it, or partitions and errors among its arguments."""
    found: dict[str, object] = {name: record.__dict__[name] for name in _FIELDS if name in record.__dict__}
    for value in record.args if isinstance(record.args, tuple) else ():
        topic, partition = getattr(value, "topic", None), getattr(value, "partition", None)
        if isinstance(topic, str) and isinstance(partition, int):
            found.setdefault("topic", topic)
            found.setdefault("partition", partition)
        elif isinstance(value, BaseException):
            found.setdefault("error", str(value))
    return found


def set_up_logging(level: str, form: str, node_id: int) -> None:
    """Send the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(node_id) if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper())
