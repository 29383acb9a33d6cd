"""A connection between a worker and a resident task that nobody else can read or change.

Both ends know a key. They agree on keys of this connection alone (X25519), which the known key signs, so that someone
who listens learns nothing, even with the known key in hand. Each message is a frame of ChaCha20-Poly1305, numbered.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import pickle
import socket
from multiprocessing.connection import Connection
from typing import Final, Generic, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_MOST_BYTES: Final = 64 << 20
_PUBLIC: Final = 32
_SIGNATURE: Final = 32
_INFO: Final = b"ottla resident task "

M = TypeVar("M")


class SealedConnection(Generic[M]):
    """Sends and receives messages. One thread may receive while another sends; several senders need a lock."""

    def __init__(self, connection: Connection[bytes, bytes], key: bytes, *, worker: bool) -> None:
        self._connection = connection
        ours, theirs = (b"worker", b"task") if worker else (b"task", b"worker")
        private = X25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        connection.send_bytes(public + hmac.digest(key, ours + public, "sha256"))
        answer = connection.recv_bytes(_PUBLIC + _SIGNATURE)
        peer, signature = answer[:_PUBLIC], answer[_PUBLIC:]
        if not hmac.compare_digest(signature, hmac.digest(key, theirs + peer, "sha256")):
            raise OSError("the other end of a resident task's connection does not know the key")
        shared = private.exchange(X25519PublicKey.from_public_bytes(peer))
        both = public + peer if worker else peer + public
        derived = HKDF(hashes.SHA256(), 64, key, _INFO + both).derive(shared)
        halves = (ChaCha20Poly1305(derived[:32]), ChaCha20Poly1305(derived[32:]))
        self._sealing, self._opening = halves if worker else halves[::-1]
        self._sent = 0
        self._received = 0

    def send(self, message: M) -> None:
        """Sends a message; OSError if the other end is gone."""
        data = pickle.dumps(message)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"a message of {len(data)} bytes is longer than {_MOST_BYTES}")
        nonce = self._sent.to_bytes(12, "big")
        self._sent += 1
        self._connection.send_bytes(self._sealing.encrypt(nonce, data, None))

    def recv(self) -> M:
        """The next message; EOFError or OSError at the end, and for a frame that was changed on its way."""
        data = self._connection.recv_bytes(_MOST_BYTES + 16)
        nonce = self._received.to_bytes(12, "big")
        self._received += 1
        try:
            found: M = pickle.loads(self._opening.decrypt(nonce, data, None))
        except InvalidTag:
            raise OSError("a message of a resident task was changed on its way") from None
        return found

    def shut(self) -> None:
        """Ends the connection, also for a thread that waits for a message. `close` must follow."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as other:
            other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
