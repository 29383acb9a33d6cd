"""What reads bytes that others wrote, as functions of bytes: each gives something or raises an error of its own kind.

A target makes good inputs, which are then damaged, and feeds one. Those that need a directory take its files as one
input.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuzz.frames import good_batch, mutate, mutate_batch
from ottla.config.broker import BrokerConfig
from ottla.config.checks import check_all, check_names
from ottla.config.properties import parse_properties
from ottla.coordinator.group.shard import SERDE as GROUP_SERDE
from ottla.coordinator.share.records import SERDE as SHARE_SERDE
from ottla.coordinator.transaction.service import SERDE as TRANSACTION_SERDE
from ottla.errors import ApiException
from ottla.log.batches import replicated_batches
from ottla.log.checkpoints import (
    CheckpointError,
    parse_checkpoint,
    read_clean_shutdown,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
)
from ottla.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from ottla.log.types import TopicPartition
from ottla.metadata.records import MetadataSerde, decode_record, encode_record
from ottla.raft.batches import read_batches
from ottla.raft.quorum_state import election_from_json
from ottla.raft.snapshots import SnapshotReader, snapshot_buffers
from ottla.records.batch import build_batch, iter_batches, iter_records
from ottla.records.codecs import Compression, compress, decompress
from ottla.records.record import Record
from ottla.records.validation import ProducePolicy, finish, validate_produce
from ottla.testing.memfs import MemFs
from ottla.testing.messages import random_message
from ottla.wire import decode, encode, messages
from ottla.wire.headers import decode_request_header, request_header_version
from ottla.wire.messages import all_messages
from unit.log.log_rig import Rig, idempotent, marker, topic_config

NOW = 1_700_000_000_000
MAX_UNPACKED = 1 << 20


@dataclass(slots=True)
class Target:
    """`good` makes an input, `feed` reads one that was damaged, `allowed` is what it may raise."""

    name: str
    good: Callable[[random.Random], bytearray]
    feed: Callable[[random.Random, bytes], None]
    damage: Callable[[random.Random, bytearray], bytearray] = mutate
    allowed: tuple[type[Exception], ...] = (ApiException,)
    share: int = 10
    """Of all cases, in parts."""
    extra_bytes: int = 0
    """What it may hold beside its input's multiple."""
    reuse: int = 20
    """How often a valid input is damaged again."""
    reset: Callable[[], None] = lambda: None
    """Puts what `feed` keeps between cases back to its beginning, so that a seed's cases are the same in each run."""


# -- messages


def _messages(kind: str) -> list[tuple[Any, int]]:
    return [
        (cls, version)
        for cls in all_messages()
        if kind in cls.NAME
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
    ]


REQUESTS = _messages("Request")
RESPONSES = _messages("Response")
API_REQUESTS = [(cls, version) for cls, version in REQUESTS if getattr(cls, "API_KEY", None) is not None]


def _message_target(name: str, kinds: list[tuple[Any, int]]) -> Target:
    """The first two bytes say which message and version it is: damage may change them too."""

    def good(rng: random.Random) -> bytearray:
        index = rng.randrange(len(kinds))
        cls, version = kinds[index]
        body = encode(random_message(cls, version, rng, unknown_tags=True), version)
        return bytearray(index.to_bytes(2, "big") + body)

    def feed(rng: random.Random, data: bytes) -> None:
        cls, version = kinds[int.from_bytes(data[:2], "big") % len(kinds)]
        decode(cls, version, memoryview(data)[2:])

    return Target(name, good, feed, share=20)


def _good_frame(rng: random.Random) -> bytearray:
    cls, version = rng.choice(API_REQUESTS)
    header = messages.RequestHeader(
        request_api_key=cls.API_KEY, request_api_version=version, correlation_id=1, client_id="fuzz"
    )
    try:
        named = request_header_version(cls.API_KEY, version)
    except ApiException:
        named = 2
    return bytearray(
        encode(header, named) + encode(random_message(cls, version, rng, unknown_tags=True), version)
    )


def _feed_frame(rng: random.Random, data: bytes) -> None:
    header, offset = decode_request_header(data)
    cls = messages.request_class(header.request_api_key)
    if cls.MIN_VERSION <= header.request_api_version <= cls.MAX_VERSION:
        decode(cls, header.request_api_version, memoryview(data)[offset:])


# -- records


POLICIES = [
    ProducePolicy.of(topic_config(**given))
    for given in (
        {},
        {"cleanup_policy": "compact"},
        {"compression_type": "zstd"},
        {"compression_type": "uncompressed"},
        {"message_timestamp_type": "LogAppendTime", "compression_type": "gzip"},
        {"message_timestamp_before_max_ms": 1000},
    )
]


def _packed_batch(rng: random.Random) -> bytearray:
    if rng.random() < 0.3:
        return good_batch(rng)
    records = [
        Record(n, NOW + n, b"k%d" % n, rng.randbytes(rng.randrange(60)), [("h", b"v")])
        for n in range(rng.randrange(1, 8))
    ]
    return bytearray(build_batch(records, compression=rng.choice(list(Compression))))


def _feed_batch(rng: random.Random, data: bytes) -> None:
    batch = validate_produce(data, rng.choice(POLICIES), NOW)
    if batch.pending:
        batch = finish(batch, MAX_UNPACKED)
    batch.buffers(0, 0)


def _feed_records(rng: random.Random, data: bytes) -> None:
    """As a follower, a cleaner or a coordinator that loads reads them: no CRC is looked at."""
    for position, header in iter_batches(data):
        for _ in iter_records(data, position, header, MAX_UNPACKED):
            pass
    replicated_batches(data, TopicPartition("t", 0), 0, 0)


def _packed(rng: random.Random) -> bytearray:
    codec = rng.choice([each for each in Compression if each != Compression.NONE])
    data = rng.randbytes(rng.randrange(1, 200)) * rng.randrange(1, 40)
    return bytearray([codec]) + compress(codec, data)


def _unpack(rng: random.Random, data: bytes) -> None:
    if data:
        unpacked = decompress(data[0] % 5, memoryview(data)[1:], MAX_UNPACKED)
        assert len(unpacked) <= max(MAX_UNPACKED, len(data))


# -- a log's directory


def _pack(files: dict[str, bytes]) -> bytearray:
    out = bytearray()
    for name, data in files.items():
        out += len(name).to_bytes(1, "big") + name.encode() + len(data).to_bytes(4, "big") + data
    return out


def _unpack_files(data: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    position = 0
    while position < len(data):
        size = data[position]
        name = data[position + 1 : position + 1 + size].decode()
        position += 1 + size
        length = int.from_bytes(data[position : position + 4], "big")
        files[name] = data[position + 4 : position + 4 + length]
        position += 4 + length
    return files


def _good_log(rng: random.Random) -> bytearray:
    rig = Rig(segment_bytes=1500, index_interval_bytes=100)
    for number in range(rng.randrange(3, 14)):
        rig.append_raw(idempotent(number, "x" * rng.randrange(80)), epoch=number // 4)
    rig.replicate(idempotent(0, "open", pid=8, is_transactional=True), epoch=5)
    rig.replicate(marker(8, commit=rng.random() < 0.5), epoch=5)
    rig.log.flush()
    rig.log.close()
    return _pack({name: rig.fs.read_bytes(f"{rig.path}/{name}") for name in rig.names()})


def _damage_files(rng: random.Random, data: bytearray) -> bytearray:
    files = _unpack_files(data)
    for name in rng.sample(sorted(files), rng.randrange(1, 3)):
        if rng.random() < 0.1:
            del files[name]
        elif name.endswith(".log") and rng.random() < 0.5:
            files[name] = bytes(mutate_batch(rng, bytearray(files[name])))
        else:
            files[name] = bytes(mutate(rng, bytearray(files[name])))
    return _pack(files)


def _feed_log(rng: random.Random, data: bytes) -> None:
    fs = MemFs(lambda: NOW)
    rig = Rig(fs, segment_bytes=1500, index_interval_bytes=100)
    rig.log.close()
    for name in rig.names():
        fs.remove(f"{rig.path}/{name}")
    for name, content in _unpack_files(data).items():
        fs.write_atomic(f"{rig.path}/{name}", content)
    log = rig.open(clean=rng.random() < 0.5, recovery_point=rng.choice((0, 3, 100)))
    log.high_watermark = log.log_end_offset
    offset = log.log_start_offset
    for _ in range(100):
        found = log.read(offset, 1 << 16).records
        following = max((header.next_offset for _, header in iter_batches(found)), default=offset)
        if following <= offset:
            break
        offset = following
    log.offset_for_timestamp(NOW + 3)
    rig.append("on top", epoch=100)


# -- small files


def _good_text(rng: random.Random) -> bytearray:
    return bytearray(
        rng.choice(
            (
                b"0\n2\nt 0 5\nu 1 7\n",
                b"0\n2\n0 0\n3 17\n",
                b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
                b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
                b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":'
                b'[{"voterId":1}],"data_version":0}',
                b"#\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\nversion=1\n",
                b'{"version":0,"brokerEpoch":7}',
            )
        )
    )


def _feed_text(rng: random.Random, data: bytes) -> None:
    fs = MemFs(lambda: NOW)
    fs.mkdir("/d")
    for name in ("partition.metadata", "meta.properties", ".kafka_cleanshutdown", "offsets"):
        fs.write_atomic(f"/d/{name}", data)
    read_partition_metadata(fs, "/d")
    read_meta_properties(fs, "/d")
    read_clean_shutdown(fs, "/d")
    read_offsets(fs, "/d/offsets")
    for parse in (election_from_json, lambda text: parse_checkpoint(text, 2), decode_snapshot):
        try:
            parse(data)
        except (ApiException, CheckpointError, CorruptSnapshotError):
            continue


def _good_properties(rng: random.Random) -> bytearray:
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names=CONTROLLER",
        "controller.quorum.voters=1@127.0.0.1:9093",
        "log.dirs=/tmp/a,/tmp/b",
        "log.retention.ms=-1",
        "log.segment.bytes=1048576",
        "compression.type=zstd",
        "unclean.leader.election.enable=false",
        "max.connections.per.ip.overrides=127.0.0.1:5",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "escaped\\ key = a\\\n  continued \\u0041",
    ]
    return bytearray("\n".join(rng.sample(lines[:5], 5) + rng.sample(lines[5:], 4)).encode())


def _feed_properties(rng: random.Random, data: bytes) -> None:
    given = parse_properties(data.decode("utf-8", "replace"))
    check_names(given)
    check_all(BrokerConfig(given))


# -- metadata and coordinators


METADATA_RECORDS = [
    (cls, version)
    for cls in all_messages()
    if cls.NAME.endswith("Record")
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]


def _good_metadata(rng: random.Random) -> bytearray:
    cls, _ = rng.choice(METADATA_RECORDS)
    while True:
        try:
            return bytearray(encode_record(random_message(cls, cls.MAX_VERSION, rng)))
        except (ApiException, KeyError):
            cls, _ = rng.choice(METADATA_RECORDS)


def _feed_metadata(rng: random.Random, data: bytes) -> None:
    decode_record(data)


def _good_snapshot(rng: random.Random) -> bytearray:
    values = [bytes(_good_metadata(rng)) for _ in range(rng.randrange(1, 6))]
    buffers = snapshot_buffers(3, values, kraft_version=1, voters=None, last_timestamp=NOW, now_ms=NOW)
    return bytearray(b"".join(buffers))


def _feed_snapshot(rng: random.Random, data: bytes) -> None:
    fs = MemFs(lambda: NOW)
    fs.mkdir("/d")
    path = "/d/00000000000000000009-0000000003.checkpoint"
    fs.write_atomic(path, data)
    for _ in read_batches(data, MetadataSerde(), path):
        pass
    for _ in SnapshotReader(fs, path, MetadataSerde()).records():
        pass


def _good_coordinator_record(rng: random.Random) -> bytearray:
    keys = [cls for cls in all_messages() if cls.NAME.endswith("Key") and hasattr(messages, cls.NAME)]
    key_class = rng.choice(keys)
    value_class = getattr(messages, key_class.NAME.removesuffix("Key") + "Value", None)
    key = rng.choice((0, 1, 3, 5, 8, 16)).to_bytes(2, "big") + bytes(
        encode(random_message(key_class, key_class.MAX_VERSION, rng), key_class.MAX_VERSION)
    )
    value = b""
    if value_class is not None:
        version = value_class.MAX_VERSION
        value = version.to_bytes(2, "big") + bytes(encode(random_message(value_class, version, rng), version))
    return bytearray(len(key).to_bytes(2, "big") + key + value)


def _feed_coordinator_record(rng: random.Random, data: bytes) -> None:
    size = int.from_bytes(data[:2], "big")
    key, value = data[2 : 2 + size], data[2 + size :]
    for serde in (GROUP_SERDE, TRANSACTION_SERDE, SHARE_SERDE):
        try:
            serde.decode(key, value or None)
        except ApiException:
            continue


TARGETS = [
    _message_target("requests", REQUESTS),
    _message_target("responses", RESPONSES),
    Target("frames", _good_frame, _feed_frame, share=20),
    Target("batches", _packed_batch, _feed_batch, mutate_batch, share=20, extra_bytes=MAX_UNPACKED),
    Target("records", _packed_batch, _feed_records, mutate_batch, share=20, extra_bytes=MAX_UNPACKED),
    Target("codecs", _packed, _unpack, share=20, extra_bytes=MAX_UNPACKED),
    Target("log files", _good_log, _feed_log, _damage_files, (ApiException, OSError), share=4, reuse=100),
    Target("small files", _good_text, _feed_text, share=10),
    Target("properties", _good_properties, _feed_properties, share=4),
    Target("metadata records", _good_metadata, _feed_metadata, share=10),
    Target("metadata snapshots", _good_snapshot, _feed_snapshot, mutate_batch, share=6),
    Target("coordinator records", _good_coordinator_record, _feed_coordinator_record, share=6),
]
