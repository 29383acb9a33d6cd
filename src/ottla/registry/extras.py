"""What `_schemas` has no place for: encryption keys and associations, a fold over the records of a topic beside it.

The topic is made and read with the first request for one of them. A registry that serves schemas only has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ottla.errors import ApiException
from ottla.json_types import JsonObject, as_int, as_text
from ottla.registry import records
from ottla.registry.errors import store_failed
from ottla.registry.fold import Fold, put
from ottla.registry.log import SchemasLog

_WAIT_S: Final = 12.0

_ASSOCIATION_TEXTS: Final = (
    "subject",
    "resourceName",
    "resourceNamespace",
    "resourceId",
    "resourceType",
    "associationType",
    "lifecycle",
)

DekId: TypeAlias = tuple[str, str, str, int]
"""The KEK, the subject, the algorithm and the version."""
AssociationId: TypeAlias = tuple[str, str, str]
"""The resource's id and type, and the kind of association (key or value)."""


def kek_key(name: str) -> bytes:
    return records.value({"keytype": "KEK", "name": name, "magic": 0})


def dek_key(dek: DekId) -> bytes:
    kek, subject, algorithm, version = dek
    return records.value(
        {
            "keytype": "DEK",
            "kekName": kek,
            "subject": subject,
            "algorithm": algorithm,
            "version": version,
            "magic": 0,
        }
    )


def association_key(place: AssociationId) -> bytes:
    resource, kind, association = place
    return records.value(
        {
            "keytype": "ASSOC",
            "resourceId": resource,
            "resourceType": kind,
            "associationType": association,
            "magic": 0,
        }
    )


class ExtrasState(Fold):
    """Keys by their names, DEKs and associations by their ids, each as the document that clients see."""

    holds = "keys"

    def __init__(self) -> None:
        super().__init__()
        self.keks: dict[str, JsonObject] = {}
        self.deks: dict[DekId, JsonObject] = {}
        self.associations: dict[AssociationId, JsonObject] = {}

    def _fold(self, key: JsonObject, value: JsonObject | None) -> None:
        match key["keytype"]:
            case "KEK":
                put(self.keks, as_text(key["name"]), value)
            case "DEK":
                place = (as_text(key["kekName"]), as_text(key["subject"]), as_text(key["algorithm"]))
                put(self.deks, (*place, as_int(key["version"])), value)
            case "ASSOC":
                if value is not None:
                    for name in _ASSOCIATION_TEXTS:
                        as_text(value[name], name)
                    if not isinstance(value["frozen"], bool):
                        raise ValueError("frozen is neither true nor false")
                kinds = (as_text(key["resourceType"]), as_text(key["associationType"]))
                put(self.associations, (as_text(key["resourceId"]), *kinds), value)


class Extras:
    """The state, and its log once it is asked for. `may_write` says whether this instance is the leader right now."""

    def __init__(self, new_log: Callable[[ExtrasState], SchemasLog], may_write: Callable[[], bool]) -> None:
        self.state = ExtrasState()
        self._new_log = new_log
        self._may_write = may_write
        self.log: SchemasLog | None = None
        """None until a first request needs it."""
        self._starting = asyncio.Lock()

    async def ready(self) -> None:
        """Wait until the topic has been read once. 50001 where it cannot be made or read."""
        async with self._starting:
            if self.log is None:
                log = self._new_log(self.state)
                try:
                    await log.start()
                except ApiException as error:
                    await log.stop()
                    raise store_failed(error) from None
                self.log = log
        try:
            await asyncio.wait_for(self.log.ready.wait(), _WAIT_S)
        except TimeoutError:
            raise store_failed(
                self.log.failure or "the registry is still reading its keys; try again"
            ) from None

    async def write(self, decide: Callable[[], Sequence[records.Pair]]) -> None:
        """Write what a decision on the current state says. After `ready` only."""
        assert self.log is not None
        await self.log.change(lambda _: decide(), self._may_write)

    async def stop(self) -> None:
        if self.log is not None:
            await self.log.stop()
