"""The keyword arguments that the joins of streams share."""

from __future__ import annotations

from typing import TypedDict

from ottla.streams.functions import Mapper
from ottla.streams.serdes import SerdeLike


class TableJoinOptions(TypedDict, total=False):
    """For a join with a table: the serdes are used where the stream is repartitioned first."""

    name: str | None
    key_serde: SerdeLike
    value_serde: SerdeLike


class StreamJoinOptions(TableJoinOptions, total=False):
    """For a join with a stream: `store` names its window stores."""

    other_value_serde: SerdeLike
    store: str | None


class JoinOptions(StreamJoinOptions, total=False):
    """For all joins: `key` computes the key to look up in a global table."""

    key: Mapper | None
