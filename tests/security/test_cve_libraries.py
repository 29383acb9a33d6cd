"""Attacks on single parts, each named after its class: codecs, secrets, hostile brokers, names of hosts."""

from __future__ import annotations

import ast
import asyncio
import inspect
import random
import socket
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.credentials.sasl_client import ClientLogin, LoginFailed
from ottla.credentials.secret import Secret
from ottla.errors import ApiException
from ottla.net.connecting import connect_socket
from ottla.records.codecs import Compression, compress, decompress
from ottla.security.mapping import SslPrincipalMapper
from ottla.wire.apis import API_VERSIONS
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError, FrameTooLargeError
from ottla.wire.frames import FrameDecoder
from ottla.wire.headers import decode_request_header
from ottla.wire.messages import request_class


def test_comparison_of_secrets_in_variable_time() -> None:
    """CVE-2021-38153: no code compares what a secret reveals; `Secret` itself compares in constant time."""
    assert "compare_digest" in inspect.getsource(Secret.matches)
    found = []
    for file in Path(ottla.__file__).parent.rglob("*.py"):
        for part in ast.walk(ast.parse(file.read_text())):
            if isinstance(part, ast.Compare) and "reveal()" in ast.unparse(part):
                found.append(f"{file.name}:{part.lineno}")
    assert not found


def test_snappy_lengths_that_lie() -> None:
    """CVE-2023-34455, CVE-2023-43642: a chunk's length is never allocated."""
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    frames = [
        header + struct.pack(">i", length) + b"\0" * 16
        for length in (-1, 0x7FFFFFFF, -(1 << 31), 1 << 30, 17)
    ]
    # Blocks whose own header says that they unpack to gigabytes.
    frames += [b"\xff\xff\xff\xff\x0f" + bytes(20), b"\x80\x80\x80\x80\x08" + b"\xff" * 100]
    tracemalloc.start()
    try:
        for frame in frames:
            with pytest.raises(ApiException):
                decompress(Compression.SNAPPY, frame, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [each for each in Compression if each], ids=lambda codec: codec.name)
def test_frames_that_give_bytes_of_earlier_ones(codec: Compression) -> None:
    """CVE-2025-12183, CVE-2025-66566: damaged frames never give what was unpacked before."""
    secret = b"the-secret-of-another-client-" * 200
    decompress(codec, compress(codec, secret), 1 << 20)
    seeded = random.Random(7)
    whole = bytearray(compress(codec, bytes(seeded.randrange(256) for _ in range(4000))))
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(seeded.randrange(1, 6)):
            damaged[seeded.randrange(len(damaged))] = seeded.randrange(256)
        if seeded.random() < 0.5:
            del damaged[seeded.randrange(len(damaged)) :]
        try:
            given = decompress(codec, bytes(damaged), 1 << 16)
        except ApiException:
            continue
        assert len(given) <= 1 << 16 and b"secret-of-another" not in given


def test_counts_of_arrays_that_amplify() -> None:
    """CVE-2026-111108: every request is refused or stays within its budget, whatever its counts announce."""
    hostile = b"\xff\xff\xff\xff\x07" * 20_000, b"\x7f\xff\xff\xff" * 20_000, b"\1" * 100_000
    tracemalloc.start()
    try:
        for key in range(93):
            try:
                cls = request_class(key)
            except (KeyError, DecodeError, ValueError):
                continue
            known = API_VERSIONS[key]
            for version in (known.min_version, known.max_stable_version):
                for body in hostile:
                    _try_to_decode(cls, version, body)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def _try_to_decode(cls: Any, version: int, body: bytes) -> None:
    try:
        decode_prefix(cls, version, body)
    except DecodeError:
        return


def test_counts_of_tags_that_amplify() -> None:
    """CVE-2026-111115: more than 64 unknown tags are refused before the first is read."""
    frame = struct.pack(">hhih", 18, 3, 1, -1) + b"\xff\xff\x7f" + b"\1\0" * 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode_request_header(frame)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_frames_of_a_hostile_broker() -> None:
    """kafka-python's CVE-2026-10142: a client does not allocate what a broker announces."""
    decoder = FrameDecoder(256 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(FrameTooLargeError):
            list(decoder.feed(struct.pack(">i", 0x7FFFFFFF) + b"x"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("iterations", ["1", "4095", "1000001", "2147483647", "99999999999999999999"])
def test_scram_iterations_of_a_hostile_broker(iterations: str) -> None:
    """kafka-python's CVE-2026-10143: neither a weak hash nor hours of hashing."""
    client = ClientLogin("SCRAM-SHA-256", "user", "pencil").begin()
    first = client.first().decode()
    nonce = first.partition("r=")[2]
    with pytest.raises(LoginFailed, match="not safe"):
        client.next(f"r={nonce}more,s=c2FsdA==,i={iterations}".encode())


def test_names_of_hosts_are_never_looked_up_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper's CVE-2026-24281: a peer is verified by the name that was given, not by what an address resolves to."""

    def forbidden(*arguments: object) -> None:
        raise AssertionError("an address was resolved backwards")

    for name in ("gethostbyaddr", "getfqdn", "getnameinfo"):
        monkeypatch.setattr(socket, name, forbidden)

    async def connect() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await connect_socket(asyncio.Protocol, "127.0.0.1", port)
            await connect_socket(asyncio.Protocol, "localhost", port)

    asyncio.run(connect())


def test_mapping_rules_that_take_for_ever() -> None:
    """ReDoS in names that a client's certificate carries."""
    mapper = SslPrincipalMapper("RULE:^(CN=(a+)+)$/$1/,DEFAULT")
    subject = "CN=" + "a" * 3000 + "!"
    assert mapper.name(subject) == subject
