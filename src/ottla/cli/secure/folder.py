"""The folder of a secured cluster: its files by name, written for their owner only and never over another file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from ottla.cli.properties_file import read_properties
from ottla.credentials.authority import CertificateAuthority
from ottla.credentials.errors import CredentialsError
from ottla.credentials.stores import Identity, StoreSource, load_identity
from ottla.errors import ApiException, ErrorCode

ADMIN: Final = "admin"
_NODE_FILE: Final = re.compile(r"node-(\d+)\.properties")
_USER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class SecureProblem(ApiException):
    """What `ottla secure` refuses, with the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


def check_user_name(name: str) -> None:
    """Refuse names that are not good names of files, or that a list of super users cannot hold."""
    if _USER_NAME.fullmatch(name) is None or name.startswith((".", "-")):
        raise SecureProblem(
            f"'{name}' is not a name of a user here: expected letters, digits, '.', '_' and '-'"
        )
    if re.fullmatch(r"ca|ca-key|node-\d+|controllers", name):
        raise SecureProblem(f"'{name}' is the name of a file of the cluster itself: choose another one")


@dataclass(frozen=True, slots=True)
class SecureFolder:
    """Where `ottla secure init` wrote."""

    path: Path

    @property
    def authority_key(self) -> Path:
        """Key and certificate of the authority. Only `init` and `renew` read it."""
        return self.path / "ca-key.pem"

    @property
    def trust(self) -> Path:
        return self.path / "ca.pem"

    @property
    def scram(self) -> Path:
        """The first SCRAM user, for `storage format --add-scram-file`."""
        return self.path / f"{ADMIN}.scram"

    @property
    def controllers(self) -> Path:
        """Client properties for `--bootstrap-controller`."""
        return self.path / "controllers.properties"

    def key_store(self, name: str) -> Path:
        return self.path / f"{name}.pem"

    def properties(self, name: str) -> Path:
        return self.path / f"{name}.properties"

    def node_ids(self) -> list[int]:
        """The nodes that have a properties file here."""
        found = (_NODE_FILE.fullmatch(each.name) for each in self.path.glob("node-*.properties"))
        return sorted(int(match[1]) for match in found if match is not None)

    def require(self) -> None:
        """Refuse a folder that `init` did not make."""
        if not self.properties(ADMIN).exists():
            raise SecureProblem(
                f"{self.path} has no {ADMIN}.properties: give the folder of `ottla secure init` with --dir"
            )

    def admin_properties(self) -> dict[str, str]:
        self.require()
        return read_properties(str(self.properties(ADMIN)))

    def load_authority(self) -> CertificateAuthority:
        if not self.authority_key.exists():
            raise SecureProblem(f"{self.authority_key} is missing: new certificates need the authority's key")
        return CertificateAuthority(self.load_identity(self.authority_key))

    def load_identity(self, path: Path) -> Identity:
        """Key and certificate of a PEM file."""
        try:
            return load_identity(StoreSource("PEM", str(path)), datetime.now(UTC))
        except CredentialsError as error:
            raise SecureProblem(str(error)) from None

    def load_current(self, path: Path) -> x509.Certificate:
        """The first certificate of a PEM file, also one that has expired."""
        try:
            return x509.load_pem_x509_certificate(path.read_bytes())
        except ValueError as error:
            raise SecureProblem(f"{path} holds no certificate: {error}") from None


def certificate_names(certificate: x509.Certificate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The hosts and addresses of a certificate, and its URIs."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), ()
    hosts = [
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    ]
    return tuple(hosts), tuple(names.get_values_for_type(x509.UniformResourceIdentifier))


def write_new(path: Path, content: str | bytes) -> Path:
    """Write a file that only its owner can read. Refuses to overwrite."""
    data = content.encode() if isinstance(content, str) else content
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SecureProblem(f"{path} exists already; nothing is overwritten") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return path


def replace(path: Path, content: bytes) -> None:
    """Put a new file in the place of one, at once: a node that reads it sees the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    write_new(fresh, content)
    os.replace(fresh, path)
