"""The audit log: one line of JSON per change and per reading of records. It never holds the content of a record."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ottla.json_types import Json

_logger = logging.getLogger(__name__)

_PLACES: Final = ("at", "since", "offset", "partition", "rows", "isolation", "cursor", "as", "format")
"""Fields of a query that say where was read. Texts and conditions stay out: what one looks for may be a secret."""

_LOOKED_AT: Final = 256 << 10


def reading(query: Mapping[str, str]) -> dict[str, object]:
    """What the log says about a query: its places, and whether a text or a condition chose among the records."""
    found: dict[str, object] = {name: query[name][:200] for name in _PLACES if query.get(name)}
    for name, word in (("q", "text"), ("filter", "condition")):
        if query.get(name):
            found["by"] = f"{found['by']} and {word}" if "by" in found else word
    return found


def newest(path: Path, fits: Callable[[Mapping[str, Json]], bool], count: int) -> list[dict[str, Json]]:
    """The newest lines of a log that fit, newest first, from its last part. It reads a file: not for a loop."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, 2) - _LOOKED_AT, 0))
        lines = file.read().splitlines()
    found: list[dict[str, Json]] = []
    for line in reversed(lines):
        if len(found) == count:
            break
        try:
            document = json.loads(line)
        except ValueError:  # the first line of the part may be cut
            continue
        if isinstance(document, dict) and fits(document):
            found.append(document)
    return found


class Audit:
    """Appends lines to a file; without a file it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8", buffering=1) if path is not None else None

    def note(
        self, who: str, what: str, cluster: str, resource: str, result: str = "ok", **more: object
    ) -> None:
        if self._file is None:
            return
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "who": who,
            "what": what,
            "cluster": cluster,
            "resource": resource,
            "result": result,
            **more,
        }
        try:
            self._file.write(json.dumps(line, ensure_ascii=True) + "\n")
        except OSError as error:
            _logger.error("The audit log cannot be written: %s", error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
