"""The transforms of a connector in their order, each with its predicate."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ottla.connect.config.definitions import parse_type
from ottla.connect.data.columns import FALLS_BACK, NotByColumns, RecordColumns
from ottla.connect.data.record import ConnectRecord
from ottla.connect.errors.tolerance import Stage, Tolerance
from ottla.connect.failures import ConfigInvalid
from ottla.connect.transforms.base import Predicate, Transformation

if TYPE_CHECKING:
    from ottla.connect.plugins import Plugins

R = TypeVar("R", bound=ConnectRecord)


@dataclass(frozen=True, slots=True)
class TransformStage:
    """A transform, and when it applies."""

    class_name: str
    transform: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def apply(self, record: R) -> R | None:
        """The record as the transform leaves it, or as it is if the predicate says so."""
        if self.predicate is not None and self.predicate.test(record) == self.negate:
            return record
        return self.transform.apply(record)

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        """The same with all records at once."""
        if not by_columns(self.transform, "apply", "apply_to_columns"):
            raise NotByColumns
        if self.predicate is not None:
            if not by_columns(self.predicate, "test", "test_columns"):
                raise NotByColumns
            if self.predicate.test_columns(records) == self.negate:
                return records
        return self.transform.apply_to_columns(records)


class TransformChain:
    """All transforms of a connector."""

    def __init__(self, stages: list[TransformStage]) -> None:
        self.stages = stages

    def apply(self, record: R, tolerance: Tolerance, first: int = 0) -> R | None:
        """The record after the stages from `first` on; None if it is dropped or skipped."""
        current: R | None = record
        for stage in self.stages[first:] if first else self.stages:
            assert current is not None
            good, current = tolerance.call(
                Stage.TRANSFORMATION, stage.class_name, current, functools.partial(stage.apply, current)
            )
            if not good or current is None:
                return None
        return current

    def apply_to_columns(self, records: RecordColumns) -> tuple[RecordColumns | None, int]:
        """The records, None if all are dropped, after as many stages as take columns; and the number of these."""
        current: RecordColumns | None = records
        for done, stage in enumerate(self.stages):
            assert current is not None
            try:
                current = stage.apply_to_columns(current)
            except FALLS_BACK:
                return current, done
            if current is None:
                break
        return current, len(self.stages)


def by_columns(plugin: object, single: str, whole: str) -> bool:
    """Whether the class that defines the way by columns is no base of the one that defines the reference."""
    return issubclass(_owner(type(plugin), whole), _owner(type(plugin), single))


def _owner(kind: type, name: str) -> type:
    return next(one for one in kind.__mro__ if name in one.__dict__)


def build_chain(config: Mapping[str, str], plugins: Plugins) -> TransformChain:
    """The transforms that a connector's keys name."""
    predicates: dict[str, Predicate] = {}
    for alias in parse_type("predicates", config.get("predicates", ""), "LIST"):
        found = _prefixed(config, f"predicates.{alias}.")
        predicates[alias] = plugins.find(found.pop("type", ""), "predicate").load()(found)
    stages = []
    for alias in parse_type("transforms", config.get("transforms", ""), "LIST"):
        found = _prefixed(config, f"transforms.{alias}.")
        spec = plugins.find(found.pop("type", ""), "transformation")
        predicate, negate = found.pop("predicate", None), found.pop("negate", "false") == "true"
        if predicate is not None and predicate not in predicates:
            raise ConfigInvalid(f"transforms.{alias}.predicate: there is no predicate '{predicate}'")
        chosen = predicates[predicate] if predicate is not None else None
        stages.append(TransformStage(spec.name, spec.load()(found), chosen, negate))
    return TransformChain(stages)


def _prefixed(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}
