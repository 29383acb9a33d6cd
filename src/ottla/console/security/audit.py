"""The audit log: one line of JSON per change and per reading of records. It never holds the content of a record."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

_logger = logging.getLogger(__name__)


class Audit:
    """Appends lines to a file; without a file it writes nothing."""

    def __init__(self, path: Path | None) -> None:
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
