"""Makes broken requests out of good ones: flipped bits, cut and stretched bytes, lying lengths, spliced batches."""

from __future__ import annotations

import random
import struct

from crc32c import crc32c

from ottla.testing.messages import random_message
from ottla.wire import encode, messages
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireMessage
from ottla.wire.headers import request_header_version

_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def good_batch(rng: random.Random) -> bytearray:
    """One record batch as a producer sends it, of a few small records."""
    records = bytearray()
    count = rng.randrange(1, 4)
    for delta in range(count):
        value = rng.randbytes(rng.randrange(0, 40))
        body = bytes([0, 0, delta * 2, 1, len(value) * 2]) + value + b"\0"
        records += bytes([len(body) * 2]) + body
    tail = struct.pack(">hiqqqhii", 0, count - 1, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, count)
    tail += records
    head = struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail))
    return bytearray(head + tail)


def good_request(rng: random.Random, apis: list[tuple[int, int, int]], topic: str) -> bytearray:
    """A request that a broker could well get, without the length in front."""
    key, low, high = rng.choice(apis)
    version = rng.randint(low, high)
    request_class = messages.request_class(key)
    if key == ApiKey.PRODUCE:
        partition = messages.ProduceRequest.PartitionProduceData(
            index=0, records=mutate_batch(rng, good_batch(rng))
        )
        named = messages.ProduceRequest.TopicProduceData(
            name=topic if version < 13 else "", partition_data=[partition]
        )
        request: WireMessage = messages.ProduceRequest(
            acks=rng.choice((0, 1, -1)), timeout_ms=100, topic_data=[named]
        )
    else:
        request = random_message(request_class, version, rng, unknown_tags=True)
    header = messages.RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=rng.randrange(1 << 31),
        client_id="fuzz",
    )
    return bytearray(encode(header, request_header_version(key, version)) + encode(request, version))


def mutate_batch(rng: random.Random, batch: bytearray) -> bytearray:
    """Damage a batch; half of the time its CRC is made right again, so that what lies behind it is reached."""
    batch = mutate(rng, batch)
    if len(batch) > 61 and rng.random() < 0.5:
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def mutate(rng: random.Random, data: bytearray) -> bytearray:
    """One to four small damages."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        if not data:
            return bytearray(rng.randbytes(rng.randrange(1, 64)))
        at = rng.randrange(len(data))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randrange(1, 16)]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 16))
            case 4:
                edge = rng.choice(_EDGES)
                width = rng.choice((1, 2, 4, 8))
                data[at : at + width] = (edge & (1 << 8 * width) - 1).to_bytes(width, "big")
            case 5:
                del data[at:]
    return data
