"""Reads Java key stores of the type JKS: the format that `keytool` wrote before PKCS12.

Private keys are under Sun's own protection (SHA-1 over password and salt); an integrity digest of the same kind
ends the file. JCEKS is another format and is refused with the command that converts it.
"""

from __future__ import annotations

import hashlib
import hmac
from itertools import cycle
from typing import Final, NamedTuple

from ottla.credentials.errors import CredentialsError

MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_KEY_PROTECTOR_OID: Final = bytes.fromhex("2b060104012a021101 01".replace(" ", ""))
_WHITENER: Final = b"Mighty Aphrodite"
_MAX_ENTRIES: Final = 100_000
_DIGEST_BYTES: Final = 20


class JksKey(NamedTuple):
    """A private key, still protected, with its certificates, the key's own first."""

    alias: str
    protected: bytes
    chain: list[bytes]


class JksStore(NamedTuple):
    """What a JKS file holds: keys and trusted certificates (DER)."""

    keys: list[JksKey]
    trusted: list[bytes]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """The entries of a store. Without a password its integrity is not checked, as Java does for trust stores."""
    if data.startswith(JCEKS_MAGIC):
        raise CredentialsError(
            "the store is of the type JCEKS; convert it with "
            "keytool -importkeystore -srcstoretype JCEKS -deststoretype PKCS12"
        )
    if not data.startswith(MAGIC):
        raise CredentialsError("the file is no JKS store")
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + _WHITENER + data[:-_DIGEST_BYTES]).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise CredentialsError("the store is damaged, or its password is wrong")
    reader = _Reader(data[:-_DIGEST_BYTES])
    try:
        return _entries(reader)
    except (IndexError, UnicodeDecodeError) as error:
        raise CredentialsError("the store ends in the middle of an entry") from error


def _entries(reader: _Reader) -> JksStore:
    reader.take(4)
    version = reader.int4()
    if version not in (1, 2):
        raise CredentialsError(f"JKS version {version} is not known")
    count = reader.int4()
    if count > _MAX_ENTRIES:
        raise CredentialsError(f"the store announces {count} entries")
    store = JksStore([], [])
    for _ in range(count):
        tag = reader.int4()
        alias = reader.text()
        reader.take(8)
        if tag == 1:
            protected = reader.take(reader.int4())
            chain = [reader.certificate(version) for _ in range(reader.int4())]
            store.keys.append(JksKey(alias, protected, chain))
        elif tag == 2:
            store.trusted.append(reader.certificate(version))
        else:
            raise CredentialsError(f"the store has an entry of the unknown kind {tag}")
    return store


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise IndexError
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def int4(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def text(self) -> str:
        return self.take(int.from_bytes(self.take(2), "big")).decode()

    def certificate(self, version: int) -> bytes:
        if version == 2:
            kind = self.text()
            if kind != "X.509":
                raise CredentialsError(f"the store has a certificate of the kind {kind}")
        return self.take(self.int4())


def unprotect(protected: bytes, password: str) -> bytes:
    """The PKCS 8 form (DER) of a key that Sun's protector has encrypted."""
    body = _encrypted_data(protected)
    if len(body) <= 2 * _DIGEST_BYTES:
        raise CredentialsError("the private key of the store is too short")
    salt, encrypted, check = body[:20], body[20:-20], body[-20:]
    secret = _utf16(password)
    stream = bytearray()
    block = salt
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, cycle(stream), strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise CredentialsError("the password of the private key (ssl.key.password) is wrong")
    return key


def _encrypted_data(protected: bytes) -> bytes:
    """The octets of an EncryptedPrivateKeyInfo: SEQUENCE { SEQUENCE { OID, ... }, OCTET STRING }."""
    outer, _ = _der_item(protected, 0, 0x30)
    algorithm, position = _der_item(outer, 0, 0x30)
    oid, _ = _der_item(algorithm, 0, 0x06)
    if oid != _KEY_PROTECTOR_OID:
        raise CredentialsError("the private key of the store is protected by an unknown algorithm")
    octets, _ = _der_item(outer, position, 0x04)
    return octets


def _der_item(data: bytes, position: int, tag: int) -> tuple[bytes, int]:
    try:
        if data[position] != tag:
            raise CredentialsError("the private key of the store is not in DER form")
        length = data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
    except IndexError:
        raise CredentialsError("the private key of the store is cut off") from None
    if position + length > len(data):
        raise CredentialsError("the private key of the store is cut off")
    return data[position : position + length], position + length


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")
