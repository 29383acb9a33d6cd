"""Groups at moments of the last ten minutes: columns of offsets, which the moments of an idle group share."""

from __future__ import annotations

from array import array
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.admin.partitions import Partition

UNKNOWN: Final = -1


class Offsets(Mapping["Partition", int]):
    """Offsets by partition: a column, beside places that many of them share. An unknown offset is not there."""

    __slots__ = ("column", "places")

    def __init__(self, places: Mapping[Partition, int], column: array[int]) -> None:
        self.places = places
        self.column = column

    def __getitem__(self, partition: Partition) -> int:
        offset = self.column[self.places[partition]]
        if offset == UNKNOWN:
            raise KeyError(partition)
        return offset

    def __iter__(self) -> Iterator[Partition]:
        return (each for each, offset in zip(self.places, self.column, strict=True) if offset != UNKNOWN)

    def __len__(self) -> int:
        return len(self.column) - self.column.count(UNKNOWN)

    def items(self) -> ItemsView[Partition, int]:
        pairs = zip(self.places, self.column, strict=True)
        return {each: offset for each, offset in pairs if offset != UNKNOWN}.items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Offsets) and other.places is self.places:
            return other.column is self.column or other.column == self.column
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


def pairs(
    one: Mapping[Partition, int], other: Mapping[Partition, int]
) -> Iterable[tuple[Partition, int, int]]:
    """The partitions that have both offsets, with the two."""
    if isinstance(one, Offsets) and isinstance(other, Offsets) and one.places is other.places:
        columns = zip(one.places, one.column, other.column, strict=True)
        if UNKNOWN not in one.column and UNKNOWN not in other.column:
            return columns
        return (each for each in columns if UNKNOWN not in each[1:])
    return ((each, offset, other[each]) for each, offset in one.items() if each in other)


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group at one moment: what `why` looks at. `before` is the sample that it follows."""

    moment_s: float
    state: str
    members: int
    epoch: int
    committed: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    starts: Mapping[Partition, int]
    before: InitVar[GroupSample | None] = None
    lag: int = field(init=False)
    """Records that the group has not read."""
    moved: bool = field(init=False)
    """Whether other offsets are committed than in the sample before."""
    back: int = field(init=False)
    """Records by which committed offsets fell since the sample before."""

    def __post_init__(self, before: GroupSample | None) -> None:
        behind = sum(end - offset for _, offset, end in pairs(self.committed, self.ends) if end > offset)
        moved = before is not None and before.committed != self.committed
        back = 0
        if moved and before is not None:
            both = pairs(before.committed, self.committed)
            back = sum(earlier - later for _, earlier, later in both if earlier > later)
        object.__setattr__(self, "lag", behind)
        object.__setattr__(self, "moved", moved)
        object.__setattr__(self, "back", back)
