"""Kerberos (SASL GSSAPI, RFC 4752): settings of both sides, and the client's exchange.

The library `gssapi` comes with the extra `ottla[kerberos]` and is loaded when a login or a listener needs it. Times,
realms and the addresses of KDCs are in the system's `krb5.conf`, or in the file that `KRB5_CONFIG` names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.credentials.errors import CredentialsError
from ottla.credentials.sasl_client import LoginFailed, SaslClient

if TYPE_CHECKING:
    import gssapi

MECHANISM: Final = "GSSAPI"
NO_LAYER: Final = 1
"""The bit of RFC 4752 for a connection whose later messages are neither signed nor encrypted by Kerberos."""
SERVICE_KEY: Final = "sasl.kerberos.service.name"
_FILE: Final = "FILE:"


def require_library() -> None:
    """Raises CredentialsError if `gssapi` is not installed."""
    try:
        import gssapi  # noqa: F401
    except ImportError as error:
        raise CredentialsError(
            "Kerberos needs the library gssapi, which is not installed or does not find the system's Kerberos: "
            f"install libkrb5-dev and run pip install 'ottla[kerberos]' ({error})"
        ) from None


def library_errors() -> tuple[type[Exception], ...]:
    """What calls of the library raise."""
    import gssapi

    return (gssapi.exceptions.GSSError,)


def service_name(keys: Mapping[str, str], jaas: Mapping[str, str]) -> str:
    """The first part of the brokers' principals, from `sasl.kerberos.service.name` or from the JAAS entry."""
    by_key, by_jaas = keys.get(SERVICE_KEY) or "", jaas.get("serviceName", "")
    if by_key and by_jaas and by_key != by_jaas:
        raise CredentialsError(
            "Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file "
            f"{by_jaas}, value in Kafka config {by_key}"
        )
    if not by_key and not by_jaas:
        raise CredentialsError(
            f"No serviceName defined in either JAAS or Kafka config: set {SERVICE_KEY} to the first part of the "
            "brokers' principals, such as kafka"
        )
    return by_key or by_jaas


def keytab_of(jaas: Mapping[str, str]) -> str | None:
    """The key table of a JAAS entry, if it says that one is used. A module's own prefix `FILE:` is dropped."""
    if jaas.get("useKeyTab", "").lower() != "true":
        return None
    return jaas.get("keyTab", "").removeprefix(_FILE) or None


def principal_name(text: str) -> gssapi.Name:
    """A principal such as `kafka/broker1.example.com@EXAMPLE.COM`."""
    import gssapi

    return gssapi.Name(text, gssapi.NameType.kerberos_principal)


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """A login by a ticket: from a key table, or from the cache that `kinit` has filled."""

    service: str
    principal: str | None = None
    """None for the one of the cache, or the first of the key table."""
    keytab: str | None = None
    ticket_cache: str | None = None
    """None for the system's default."""

    @property
    def mechanism(self) -> str:
        return MECHANISM

    def begin(self, host: str) -> SaslClient:
        """A new exchange with the broker at this host. Nothing is asked of the KDC yet."""
        try:
            require_library()
        except CredentialsError as error:
            raise LoginFailed(str(error)) from None
        return KerberosClient(self, host)

    def credentials(self) -> gssapi.Credentials:
        """The client's ticket. With a key table, a new one is fetched whenever the last one is about to end."""
        import gssapi

        name = None if self.principal is None else principal_name(self.principal)
        store = {}
        if self.keytab is not None:
            # Tickets stay in this process; logins with the same key share them.
            own = hashlib.sha256(f"{self.keytab}\0{self.principal}".encode()).hexdigest()[:32]
            store = {"client_keytab": _FILE + self.keytab, "ccache": f"MEMORY:ottla-{own}"}
        elif self.ticket_cache is not None:
            store = {"ccache": _FILE + self.ticket_cache.removeprefix(_FILE)}
        return gssapi.Credentials(
            name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None
        )


def kerberos_login(keys: Mapping[str, str], jaas: Mapping[str, str]) -> KerberosLogin:
    """How a client logs in, from Kafka's keys and the options of its `Krb5LoginModule`. Raises CredentialsError.

    librdkafka's keys `sasl.kerberos.keytab` and `sasl.kerberos.principal` will do in the place of a JAAS entry.
    """
    require_library()
    return KerberosLogin(
        service_name(keys, jaas),
        jaas.get("principal") or keys.get("sasl.kerberos.principal") or None,
        keytab_of(jaas) or keys.get("sasl.kerberos.keytab") or None,
        jaas.get("ticketCache") or None,
    )


class KerberosClient:
    """The client's side of RFC 4752. It also makes sure that the broker is the one that the KDC knows."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        self._login = login
        self._host = host
        self._context: gssapi.SecurityContext | None = None
        self._chosen = False

    def first(self) -> bytes:
        """Asks the KDC for a ticket, if there is none yet."""
        import gssapi

        service = self._login.service
        try:
            self._context = gssapi.SecurityContext(
                # Written out in full: the library would look an address up backwards, and believe the answer.
                name=principal_name(f"{service}/{self._host}"),
                creds=self._login.credentials(),
                mech=gssapi.MechType.kerberos,
                flags=(gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity),
                usage="initiate",
            )
            return bytes(self._context.step() or b"")
        except library_errors() as error:
            raise LoginFailed(
                f"Kerberos gives no ticket for {service}/{self._host}: {_reason(error)}"
            ) from None

    def next(self, answer: bytes) -> bytes | None:
        context = self._context
        assert context is not None
        if self._chosen:
            return None
        try:
            if not context.complete:
                return bytes(context.step(answer) or b"")
            offered = context.unwrap(answer).message
            if len(offered) != 4 or not offered[0] & NO_LAYER:
                raise LoginFailed(
                    "the broker wants Kerberos to sign or encrypt all messages, which Kafka does not do"
                )
            self._chosen = True
            name = str(context.initiator_name).encode()
            return bytes(context.wrap(bytes((NO_LAYER, 0, 0, 0)) + name, False).message)
        except library_errors() as error:
            raise LoginFailed(f"the broker does not prove who it is to Kerberos: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
