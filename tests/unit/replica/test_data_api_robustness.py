"""Whatever numbers a request carries, the data APIs answer it or refuse it with one of Kafka's errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from ottla.api import data
from ottla.api.base import NO_RESPONSE, PARKED
from ottla.api.registry import supported
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode, encode
from ottla.wire.messages import request_class
from unit.replica.replica_scene import Context, Scene, make_scene

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def numbers(bits: int) -> st.SearchStrategy[int]:
    high = 2 ** (bits - 1)
    return st.integers(-3, 4) | st.sampled_from([-high, high - 1, -high + 1, 1000 % high])


def requests(message: Any, version: int, scene: Scene, cls: Any = None) -> st.SearchStrategy[Any]:
    """Requests of the version whose names, ids and records are often those of the scene."""
    batch = scene.batch(b"a", b"b")
    cls = cls or message

    def value(field: Any) -> st.SearchStrategy[Any]:
        kind = field.type
        if field.struct is not None:
            single = requests(message, version, scene, getattr(message, kind))
        elif kind in BITS:
            single = numbers(BITS[kind])
        elif kind == "bool":
            single = st.booleans()
        elif kind == "string":
            single = st.sampled_from(["t", "c", "unknown", "", "__consumer_offsets"])
        elif kind == "uuid":
            single = st.sampled_from([*scene.topic_ids.values(), bytes(16), b"?" * 16])
        elif kind == "records":
            single = st.sampled_from([batch, batch[:-1], batch + batch, b"", None]) | st.binary(max_size=80)
        else:
            raise AssertionError(f"no strategy for {kind}")
        found = st.lists(single, max_size=3) if field.is_array else single
        return found | st.none() if version in field.nullable else found

    fields = {field.name: value(field) for field in cls.SCHEMA.fields if version in field.versions}
    return st.fixed_dictionaries(fields).map(lambda drawn: cls(**drawn))


def new_scene() -> Scene:
    scene = make_scene()
    scene.create_topic("t", 2)
    scene.create_topic("c", configs={"cleanup.policy": "compact", "compression.type": "gzip"})
    scene.append("t", 0, b"x", b"y")
    return scene


@pytest.mark.parametrize("name", data.APIS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.data())
def test_every_request_is_answered(name: str, draw: st.DataObject) -> None:
    scene = new_scene()
    api = supported(on_controller_listener=False)[ApiKey[name.upper()]]
    version = draw.draw(st.sampled_from(api.versions))
    cls = request_class(api.key)
    sent = draw.draw(requests(cls, version, scene))
    request = decode(cls, version, encode(sent, version))
    ctx = Context(version)
    try:
        answer = api.handle(scene.broker, ctx, request)
    except ApiException as error:
        if api.on_error is not None:
            encode(api.on_error(ctx, request, error), version)
        return
    if answer is PARKED:
        # Logs of new partitions are created in the executor, which gets them in the loop's next turn.
        for _ in range(3):
            scene.executor.run()
            scene.clock.advance(0.001)
        # A fetch may wait for up to 25 days.
        scene.clock.advance(2**31)
        answer = ctx.response
    if answer is not NO_RESPONSE:
        encode(answer, version)
    assert scene.replicas.delayed_requests.count == 0
