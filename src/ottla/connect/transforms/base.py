"""What a transform and a predicate are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ottla.connect.config.definitions import ConfigDef, kafka_keys
from ottla.connect.data.record import ConnectRecord
from ottla.connect.failures import NotByColumns

if TYPE_CHECKING:
    from ottla.connect.data.columns import RecordColumns

R = TypeVar("R", bound=ConnectRecord)


class Transformation(ABC):
    """Changes a record, or drops it. `configs` are the connector's keys without the prefix `transforms.<alias>.`."""

    definition: ClassVar[str] = ""

    def __init__(self, configs: Mapping[str, str]) -> None:
        self.values = self.config_def().parse(configs)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The transform's keys."""
        return kafka_keys(cls.definition)

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """The changed record; None drops it."""

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        """`apply` to all records. NotByColumns, or any other error, where they must be taken one by one."""
        raise NotByColumns


class Predicate(ABC):
    """Says whether a transform applies to a record."""

    definition: ClassVar[str] = ""

    def __init__(self, configs: Mapping[str, str]) -> None:
        self.values = self.config_def().parse(configs)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The predicate's keys."""
        return kafka_keys(cls.definition)

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Whether the predicate is true for a record."""

    def test_columns(self, records: RecordColumns) -> bool:
        """`test` of all records. NotByColumns, or any other error, where they differ."""
        raise NotByColumns
