"""The Kafka protocol as bytes: schema table, message classes, codecs, headers and frames.

Everything here is free of I/O. Messages are reached through `ottla.wire.messages`.
"""

from ottla.wire.codec import decode, decode_prefix, encode
from ottla.wire.errors import DecodeError, EncodeError, FrameTooLargeError, UnsupportedVersionError

__all__ = [
    "DecodeError",
    "EncodeError",
    "FrameTooLargeError",
    "UnsupportedVersionError",
    "decode",
    "decode_prefix",
    "encode",
]
