"""More of what reads bytes that others wrote: credentials, tokens, Connect, PostgreSQL's changes, console."""

from __future__ import annotations

import base64
import hashlib
import json
import random

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from fuzz.frames import mutate
from fuzz.targets import Target
from ottla.connect import formats
from ottla.connect.failures import ConnectError
from ottla.connect.offsets import parse_offsets, parse_sink_offsets
from ottla.connect.sources.changes import pgoutput
from ottla.connect.state import ClusterState
from ottla.connect.stores import _Table
from ottla.console.reader.records import parse_cursor
from ottla.console.web import BadInput
from ottla.credentials.errors import CredentialsError
from ottla.credentials.jaas import parse_file, parse_modules
from ottla.credentials.jks import read_jks, unprotect
from ottla.security.sasl.jwks import parse_keys
from ottla.security.sasl.jwt_validation import (
    ClaimRules,
    InvalidToken,
    JwksValidator,
    UnsecuredValidator,
)
from unit.connect.sources.test_pgoutput import MESSAGES

_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_JAAS = (
    f'{_MODULE} required username="alice" password="a \\"secret\\"; // none" tokenauth=true;',
    f"KafkaServer {{ {_MODULE} required username='b' password=\"c\"; {_MODULE} optional; }};\n/* end */ Client {{}};",
)
_NOW_S = 1_700_000_000


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# -- credentials


def _good_jaas(rng: random.Random) -> bytearray:
    return bytearray(rng.choice(_JAAS).encode())


def _feed_jaas(rng: random.Random, data: bytes) -> None:
    parse = rng.choice((parse_modules, parse_file))
    parse(_text(data))


def _der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = bytes([len(body)]) if len(body) < 128 else b"\x81" + bytes([len(body)])
    return bytes([tag]) + size + body


def _protected_key(rng: random.Random) -> bytes:
    """A private key as Sun's protector encrypts it."""
    secret, salt, key = "secret".encode("utf-16-be"), rng.randbytes(20), rng.randbytes(rng.randrange(20, 60))
    stream, block = b"", salt
    while len(stream) < len(key):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    encrypted = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    body = salt + encrypted + hashlib.sha1(secret + key).digest()
    return _der(
        0x30, _der(0x30, _der(0x06, bytes.fromhex("2b060104012a02110101")), b"\x05\x00"), _der(0x04, body)
    )


def _good_jks(rng: random.Random) -> bytearray:
    def field(size: int, raw: bytes) -> bytes:
        return len(raw).to_bytes(size, "big") + raw

    certificate = field(2, b"X.509") + field(4, rng.randbytes(40))
    entries = [
        (2).to_bytes(4, "big") + field(2, b"ca") + bytes(8) + certificate,
        (1).to_bytes(4, "big")
        + field(2, b"key")
        + bytes(8)
        + field(4, _protected_key(rng))
        + (1).to_bytes(4, "big")
        + certificate,
    ]
    head = b"\xfe\xed\xfe\xed" + (2).to_bytes(4, "big") + len(entries).to_bytes(4, "big")
    return bytearray(head + b"".join(entries) + bytes(20))


def _feed_jks(rng: random.Random, data: bytes) -> None:
    store = read_jks(data, None)
    for key in store.keys:
        unprotect(key.protected, "secret")


_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_PUBLIC = {**json.loads(RSAAlgorithm.to_jwk(_KEY.public_key())), "kid": "k", "use": "sig", "alg": "RS256"}
_RULES = ClaimRules("issuer", frozenset({"kafka"}))
_VALIDATORS = (
    JwksValidator(parse_keys(json.dumps({"keys": [_PUBLIC]}).encode()).get, _RULES),
    UnsecuredValidator(ClaimRules(None, None)),
)


def _good_token(rng: random.Random) -> bytearray:
    claims = {"iss": "issuer", "aud": ["kafka"], "sub": "alice", "iat": _NOW_S, "exp": _NOW_S + 60}
    if rng.random() < 0.5:
        parts = [{"alg": "none"}, claims]
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
        return bytearray(b".".join([*encoded, b""]))
    return bytearray(jwt.encode(claims, _KEY, "RS256", headers={"kid": "k"}).encode())


def _damage_token(rng: random.Random, data: bytearray) -> bytearray:
    """Damage the text, or what it encodes."""
    if rng.random() < 0.4:
        return mutate(rng, data)
    parts = bytes(data).split(b".")
    at = rng.randrange(2)
    inner = bytearray(base64.urlsafe_b64decode(parts[at] + b"=" * (-len(parts[at]) % 4)))
    parts[at] = base64.urlsafe_b64encode(bytes(mutate(rng, inner))).rstrip(b"=")
    return bytearray(b".".join(parts))


def _feed_token(rng: random.Random, data: bytes) -> None:
    rng.choice(_VALIDATORS).validate(_text(data), _NOW_S)


# -- Connect


def _entries() -> list[formats.Entry]:
    return [
        formats.connector_config("c", {"connector.class": "X", "tasks.max": "2"}),
        formats.target_state("c", "PAUSED"),
        formats.task_config("c", 0, {"task.class": "T"}),
        formats.tasks_committed("c", 1),
        formats.restart_request("c", include_tasks=True, only_failed=False),
        formats.fencing("c", 3),
        formats.logger_level("root", "INFO"),
        formats.status_of_connector("c", formats.status("RUNNING", "w:8083", 1, None, "1")),
        formats.status_of_task("c", 0, formats.status("FAILED", "w:8083", 1, "a trace", None)),
        formats.active_topic("t", "c", 0, 1_700_000_000_000),
        formats.Entry(formats.offset_key("c", '{"file":"a"}'), formats.offset_value({"position": 17})),
    ]


_ENTRIES = _entries()


def _good_entry(rng: random.Random) -> bytearray:
    entry = rng.choice(_ENTRIES)
    return bytearray(len(entry.key).to_bytes(2, "big") + entry.key + (entry.value or b""))


def _feed_entry(rng: random.Random, data: bytes) -> None:
    size = int.from_bytes(data[:2], "big")
    key, value = data[2 : 2 + size], data[2 + size :] or None
    state = ClusterState()
    for entry in _ENTRIES[:3]:
        state.replay_config(entry.key, entry.value)
    state.replay_config(key, value)
    state.replay_status(key, value)
    table = _Table()
    table.apply(key, value)
    table.of("c")


def _good_offsets(rng: random.Random) -> bytearray:
    sink = {"kafka_topic": "t", "kafka_partition": rng.randrange(9)}
    source = {"file": "a", "nested": {"x": [1, None]}}
    pairs = [
        {"partition": rng.choice((sink, source)), "offset": {"kafka_offset": rng.randrange(10**9)}},
        {"partition": sink, "offset": None},
    ]
    return bytearray(json.dumps({"offsets": pairs}).encode())


def _feed_offsets(rng: random.Random, data: bytes) -> None:
    try:
        body = json.loads(data)
    except ValueError:
        return
    parse_sink_offsets(parse_offsets(body))


def _good_pgoutput(rng: random.Random) -> bytearray:
    return bytearray(rng.choice(MESSAGES))


def _feed_pgoutput(rng: random.Random, data: bytes) -> None:
    pgoutput.decode(data)


# -- the console


def _good_cursor(rng: random.Random) -> bytearray:
    numbers = [*range(4), *rng.choice(((), (), ("9",), ("9" * 5000,)))]
    return bytearray(".".join(f"{n}:{rng.randrange(10**12)}" for n in numbers).encode())


def _feed_cursor(rng: random.Random, data: bytes) -> None:
    parse_cursor(_text(data), 4)


PART_TARGETS = [
    Target("JAAS", _good_jaas, _feed_jaas, allowed=(CredentialsError,), share=6),
    Target("JKS", _good_jks, _feed_jks, allowed=(CredentialsError,), share=6),
    Target("tokens", _good_token, _feed_token, _damage_token, (InvalidToken,), share=4),
    Target("Connect topics", _good_entry, _feed_entry, share=6),
    Target("Connect offsets", _good_offsets, _feed_offsets, allowed=(ConnectError,), share=4),
    Target("pgoutput", _good_pgoutput, _feed_pgoutput, allowed=(ConnectError,), share=6),
    Target("console positions", _good_cursor, _feed_cursor, allowed=(BadInput,), share=2),
]
