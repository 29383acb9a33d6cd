"""The classes of all transforms by the names that plugins have: those of one side come for keys and for values."""

from __future__ import annotations

from ottla.connect.transforms.casting import Cast, SetSchemaMetadata
from ottla.connect.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
)
from ottla.connect.transforms.fields import ValueToKey as ValueToKey
from ottla.connect.transforms.headers import DropHeaders as DropHeaders
from ottla.connect.transforms.headers import Filter as Filter
from ottla.connect.transforms.headers import HeaderFrom
from ottla.connect.transforms.headers import InsertHeader as InsertHeader
from ottla.connect.transforms.parts import OneSided
from ottla.connect.transforms.timestamps import RegexRouter as RegexRouter
from ottla.connect.transforms.timestamps import TimestampConverter
from ottla.connect.transforms.timestamps import TimestampRouter as TimestampRouter

ONE_SIDED: tuple[type[OneSided], ...] = (
    *(Cast, ExtractField, Flatten, HeaderFrom, HoistField, InsertField, MaskField),
    *(ReplaceField, SetSchemaMetadata, TimestampConverter),
)

for _kind in ONE_SIDED:
    for _side in ("Key", "Value"):
        globals()[_kind.__name__ + _side] = type(_kind.__name__ + _side, (_kind,), {"side": _side.lower()})
