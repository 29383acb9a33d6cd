"""The number of keys that a registry holds is bounded."""

from __future__ import annotations

import asyncio

import pytest

from ottla.registry import keys
from ottla.registry.errors import RegistryError
from ottla.registry.extras import ExtrasState
from ottla.registry.keys import Keys


class Decided:
    """Takes the records of a decision into the state, as the topic does."""

    def __init__(self) -> None:
        self.state = ExtrasState()

    async def write(self, decide):
        for key, value in decide():
            self.state.apply(self.state.next_offset, key, value)


def test_keys_beyond_the_limit_are_refused_as_too_many(monkeypatch):
    monkeypatch.setattr(keys, "MAX_KEKS", 1)
    monkeypatch.setattr(keys, "MAX_DEKS", 1)
    held = Keys(Decided(), now_ms=lambda: 1)
    kek = {"name": "a", "kmsType": "local-kms", "kmsKeyId": "mine"}
    asyncio.run(held.register_kek(kek))
    asyncio.run(held.register_dek("a", "orders", {"encryptedKeyMaterial": "AAAA"}, rewrap=False))
    for beyond in (
        held.register_kek({**kek, "name": "b"}),
        held.register_dek("a", "orders", {"version": 2, "encryptedKeyMaterial": "AAAA"}, rewrap=False),
    ):
        with pytest.raises(RegistryError, match=r"the registry has 1 .EKs, and takes no more") as refused:
            asyncio.run(beyond)
        assert (refused.value.status, refused.value.code) == (409, 40972)
    # What is there can still be deleted, and registered again.
    asyncio.run(held.delete_deks("a", "orders", keys.DEFAULT_ALGORITHM, None, permanent=False))
    asyncio.run(held.delete_kek("a", permanent=False))
    assert asyncio.run(held.register_kek(kek))["ts"] == 1
