"""Kafka's predicates: HasHeaderKey, RecordIsTombstone and TopicNameMatches."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.connect.data.columns import NotByColumns, RecordColumns, all_null, has_nulls
from ottla.connect.data.record import ConnectRecord
from ottla.connect.transforms.base import Predicate
from ottla.connect.transforms.java_regex import java_regex


class HasHeaderKey(Predicate):
    """True for records with a header of a name."""

    definition = "HasHeaderKey"

    def test(self, record: ConnectRecord) -> bool:
        """Whether the header is there."""
        return any(one.key == self.values["name"] for one in record.headers)

    def test_columns(self, records: RecordColumns) -> bool:
        """Records side by side have no headers."""
        return False


class RecordIsTombstone(Predicate):
    """True for records without a value."""

    definition = "RecordIsTombstone"

    def test(self, record: ConnectRecord) -> bool:
        """Whether the value is null."""
        return record.value is None

    def test_columns(self, records: RecordColumns) -> bool:
        """Whether all values are null, or none is."""
        if records.value.is_struct or not has_nulls(records.value.column):
            return False
        if all_null(records.value.column):
            return True
        raise NotByColumns


class TopicNameMatches(Predicate):
    """True for records of topics whose names match a pattern."""

    definition = "TopicNameMatches"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._pattern = java_regex("pattern", self.values["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        """Whether the whole name matches."""
        return bool(record.topic) and self._pattern.fullmatch(record.topic) is not None

    def test_columns(self, records: RecordColumns) -> bool:
        """Whether the whole name of the one topic matches."""
        return bool(records.topic) and self._pattern.fullmatch(records.topic) is not None
