"""What comparisons may cost, so that no two schemas keep the registry busy."""

from __future__ import annotations

from ottla.registry.errors import InvalidSchema
from ottla.registry.limits import MAX_ALL_PAIRS, MAX_COMPARED_ENTRIES, MAX_COMPARED_PAIRS


class Budget:
    """Counts what the comparisons of one request look at, and refuses beyond the limits."""

    def __init__(self) -> None:
        self._all_pairs = self._pairs = self._entries = 0

    def begin(self) -> None:
        """Begin the next comparison of two schemas."""
        self._pairs = self._entries = 0

    def pair(self) -> None:
        """Count a pair of types."""
        self._pairs += 1
        self._all_pairs += 1
        if self._pairs > MAX_COMPARED_PAIRS:
            raise InvalidSchema(f"the comparison looks at more than {MAX_COMPARED_PAIRS} pairs of types")
        if self._all_pairs > MAX_ALL_PAIRS:
            raise InvalidSchema(
                f"the comparisons with all versions look at more than {MAX_ALL_PAIRS} pairs of types"
            )

    def entries(self, count: int) -> None:
        """Count entries of lists and objects: symbols, values, names, keywords."""
        self._entries += count
        if self._entries > MAX_COMPARED_ENTRIES:
            raise InvalidSchema(
                f"the comparison looks at more than {MAX_COMPARED_ENTRIES} symbols, values and keywords"
            )
