"""What each configuration key means, in a sentence: for DescribeConfigs and for the configuration reference.

The sentences are in `documentation.tsv`. A broker reads the file when a client first asks for it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final, Literal

Scope = Literal["broker", "topic", "group", "client-metrics"]

_FILE: Final = "documentation.tsv"
_OTHER: Final = "A key of a plugin or of a listener; Ottla has no description of it."


def documentation(scope: Scope, name: str) -> str:
    """The sentence for a key. A key of a listener (`listener.name.<listener>.<key>`) has the sentence of its key.

    >>> documentation("topic", "retention.ms")
    'How many milliseconds records are kept; -1 for ever.'
    """
    table = _table()
    found = table.get((scope, name))
    if found is None and scope == "broker":
        from ottla.config.synonyms import base_of_listener_key

        found = table.get((scope, base_of_listener_key(name) or ""))
    return found or _OTHER


@functools.cache
def _table() -> dict[tuple[str, str], str]:
    text = Path(__file__).with_name(_FILE).read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {(scope, name): sentence for scope, name, sentence in rows}
