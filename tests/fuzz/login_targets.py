"""Messages of logins, records of Mirror's topics, and binary values that the console and serializers show."""

from __future__ import annotations

import random
import struct

from google.protobuf import struct_pb2

from fuzz.targets import Target
from ottla.console.reader import cbor
from ottla.credentials.sasl_client import ClientLogin, LoginFailed, ScramClient
from ottla.credentials.secret import Secret
from ottla.mirror import formats
from ottla.mirror.formats import BadRecord, Checkpoint, Heartbeat, OffsetSync
from ottla.pipeline.writer import Place
from ottla.schemas.avro_decode import DAMAGED
from ottla.schemas.proto_messages import parse, read_indexes, to_python
from ottla.security.sasl.mechanism import SaslFailed
from ottla.security.sasl.plain import PlainServer
from ottla.security.sasl.scram import ScramServer
from unit.security.test_sasl import PENCIL

# -- logins

_NAMES = {"user": PENCIL}
_EDGE = b"\n"
"""Between two messages of an exchange."""


def _server() -> ScramServer:
    return ScramServer("SCRAM-SHA-256", _NAMES.get, None, b"probing", "server")


def _good_scram(rng: random.Random) -> bytearray:
    """Both messages of a client that knows the password, or does not."""
    password = rng.choice(("pencil", "pencil", "pen"))
    client = ScramClient("SCRAM-SHA-256", rng.choice(("user", "user", "no, one")), Secret(password), "client")
    first = client.first()
    final = client.next(_server().evaluate(first))
    assert final is not None
    return bytearray(first + _EDGE + final)


def _feed_scram(rng: random.Random, data: bytes) -> None:
    server = _server()
    for message in data.split(_EDGE)[:4]:
        server.evaluate(message)
    if server.complete:
        assert server.principal.name == "user", "only the user who knows the password is let in"


def _good_plain(rng: random.Random) -> bytearray:
    return bytearray(ClientLogin("PLAIN", "user", "pencil").begin().first())


def _feed_plain(rng: random.Random, data: bytes) -> None:
    PlainServer({"user": Secret("pencil")}).evaluate(data)
    assert data.split(b"\0")[1:] == [b"user", b"pencil"]


def _good_challenge(rng: random.Random) -> bytearray:
    client = ScramClient("SCRAM-SHA-256", "user", Secret("pencil"), "client")
    server = _server()
    challenge = server.evaluate(client.first())
    final = client.next(challenge)
    assert final is not None
    return bytearray(challenge + _EDGE + server.evaluate(final))


def _feed_challenge(rng: random.Random, data: bytes) -> None:
    """A client believes only the server that knows its password."""
    client = ScramClient("SCRAM-SHA-256", "user", Secret("pencil"), "client")
    client.first()
    challenge, _, signature = data.partition(_EDGE)
    client.next(challenge)
    client.next(signature)


# -- Mirror's topics


def _good_mirrored(rng: random.Random) -> bytearray:
    place = Place("orders", rng.randrange(9))
    records = (
        OffsetSync(place, rng.randrange(10**9), rng.randrange(10**9)),
        Checkpoint("group", place, rng.randrange(10**9), 7, "metadata"),
        Heartbeat("A", "B", 1_700_000_000_000),
    )
    number = rng.randrange(len(records))
    one = records[number]
    key, value = one.key(), one.value()
    return bytearray(bytes([number]) + len(key).to_bytes(2, "big") + key + value)


def _feed_mirrored(rng: random.Random, data: bytes) -> None:
    size = int.from_bytes(data[1:3], "big")
    key, value = data[3 : 3 + size], data[3 + size :]
    kinds = (OffsetSync, Checkpoint, Heartbeat)
    if data:
        kinds[data[0] % 3].parse(key, value)
    formats.parse_run_key(key + value)
    formats.parse_run_value(value)


# -- values


def _good_cbor(rng: random.Random) -> bytearray:
    items = (
        b"\x18\x64",
        b"\x39\x03\xe7",
        b"\x65hello",
        b"\x5f\x42ab\x41c\xff",
        b"\xfb" + struct.pack(">d", 1.5),
        b"\xf6",
        b"\xc2\x49" + rng.randbytes(9),
        b"\x82\x01\xa1\x61k\x9f\x02\xff",
    )
    chosen = rng.choices(items, k=rng.randrange(1, 8))
    return bytearray(bytes([0x80 + len(chosen)]) + b"".join(chosen))


def _feed_cbor(rng: random.Random, data: bytes) -> None:
    cbor.decode(data)


def _good_proto(rng: random.Random) -> bytearray:
    value = struct_pb2.Struct()
    value.update({"n": 1.5, "list": [True, None, {"deep": "er"}], "t": "x" * rng.randrange(40)})
    return bytearray(rng.choice((b"\x00", b"\x02\x00", b"\x04\x02\x00")) + value.SerializeToString())


def _feed_proto(rng: random.Random, data: bytes) -> None:
    _, start = read_indexes(data, 0)
    to_python(parse(struct_pb2.Struct, data[start:]))


LOGIN_TARGETS = [
    Target("SCRAM", _good_scram, _feed_scram, allowed=(SaslFailed,), share=2),
    Target("PLAIN", _good_plain, _feed_plain, allowed=(SaslFailed,), share=4),
    Target("SCRAM of a server", _good_challenge, _feed_challenge, allowed=(LoginFailed,), share=1, reuse=100),
    Target("mirror records", _good_mirrored, _feed_mirrored, allowed=(BadRecord,), share=4),
    Target("CBOR", _good_cbor, _feed_cbor, allowed=(cbor.NotCbor,), share=4),
    Target("protobuf records", _good_proto, _feed_proto, allowed=DAMAGED, share=4),
]
