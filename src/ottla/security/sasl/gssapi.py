"""SASL GSSAPI (RFC 4752): the client shows a Kerberos ticket for this broker.

Tickets are checked in a thread: the library reads the key table and writes down what it has seen. The client gets no
reason for a refusal; skew of clocks, unknown keys and the like are in the broker's log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.credentials.errors import CredentialsError
from ottla.credentials.kerberos import NO_LAYER, keytab_of, library_errors, principal_name, require_library
from ottla.security.kerberos_names import RULES_KEY, KerberosShortNamer
from ottla.security.mapping import NoMatchingRule
from ottla.security.principal import ANONYMOUS, Principal, user
from ottla.security.sasl.mechanism import SaslFailed

if TYPE_CHECKING:
    import gssapi

_LAYERS: Final = bytes((NO_LAYER, 0, 0, 0))


class KerberosAcceptor:
    """The broker's own key, and whom clients become. Raises CredentialsError for settings that cannot work."""

    __slots__ = ("_credentials", "_namer")

    def __init__(self, keys: Mapping[str, str], jaas: Mapping[str, str]) -> None:
        """`jaas`: the options of the listener's `Krb5LoginModule`."""
        require_library()
        import gssapi

        keytab, principal = keytab_of(jaas), jaas.get("principal")
        if keytab is None or not principal:
            raise CredentialsError(
                "the Krb5LoginModule of a listener needs useKeyTab=true, keyTab and principal, "
                'such as principal="kafka/broker1.example.com@EXAMPLE.COM"'
            )
        if not os.access(keytab, os.R_OK):
            raise CredentialsError(f"the key table {keytab} does not exist or cannot be read")
        name = principal_name(principal)
        try:
            self._credentials: gssapi.Credentials = gssapi.Credentials(
                name=name,
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": f"FILE:{keytab}"},
            )
        except library_errors() as error:
            raise CredentialsError(f"the key table {keytab} has no key of {principal}: {error}") from None
        realm = str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
        try:
            self._namer = KerberosShortNamer(keys.get(RULES_KEY) or "DEFAULT", _default_realm() or realm)
        except ValueError as error:
            raise CredentialsError(str(error)) from None

    def context(self) -> gssapi.SecurityContext:
        """A new exchange of tickets."""
        import gssapi

        context = gssapi.SecurityContext(creds=self._credentials, usage="accept")
        # An error is an error at once: its token for the client would tell why.
        context.__DEFER_STEP_ERRORS__ = False
        return context

    def user(self, principal: str) -> Principal:
        """Who a client is. Raises NoMatchingRule."""
        return user(self._namer.name(principal))


def _default_realm() -> str:
    """That of `krb5.conf`; empty if it names none."""
    import gssapi

    try:
        name = principal_name("ottla").canonicalize(gssapi.MechType.kerberos)
    except library_errors():
        return ""
    return str(name).rpartition("@")[2]


class _Step(Enum):
    TICKETS = auto()
    ESTABLISHED = auto()
    """The client has to acknowledge our last ticket."""
    LAYER = auto()
    """It has to choose what Kerberos does with later messages: nothing."""


class GssapiServer:
    """One exchange."""

    __slots__ = ("_acceptor", "_context", "_prepared", "_step", "complete", "principal")

    expires_at_ms: None = None

    def __init__(self, acceptor: KerberosAcceptor) -> None:
        self._acceptor = acceptor
        self._context: gssapi.SecurityContext | None = None
        self._prepared: bytes | SaslFailed | None = None
        """What the thread has found out about the token that comes next."""
        self._step = _Step.TICKETS
        self.complete = False
        self.principal: Principal = ANONYMOUS

    def preparation(self, token: bytes) -> Callable[[], None] | None:
        """Tickets are looked at in a thread."""
        if self._step is not _Step.TICKETS or self._prepared is not None:
            return None
        return partial(self._prepare, token)

    def _prepare(self, token: bytes) -> None:
        try:
            self._prepared = self._accept(token)
        except SaslFailed as failed:
            self._prepared = failed

    def _accept(self, token: bytes) -> bytes:
        try:
            if self._context is None:
                self._context = self._acceptor.context()
            return bytes(self._context.step(token) or b"")
        except library_errors() as error:
            raise SaslFailed(None, f"Kerberos refuses the ticket: {' '.join(str(error).split())}") from None

    def evaluate(self, token: bytes) -> bytes:
        """The next token for the client."""
        if self._step is _Step.TICKETS:
            return self._ticket(token)
        if self._step is _Step.ESTABLISHED:
            if token:
                raise SaslFailed(None, "the client sends data where its acknowledgement was expected")
            return self._offer()
        self._choice(token)
        self.complete = True
        return b""

    def _ticket(self, token: bytes) -> bytes:
        prepared, self._prepared = self._prepared, None
        answer = self._accept(token) if prepared is None else prepared
        if isinstance(answer, SaslFailed):
            raise answer
        assert self._context is not None
        if not self._context.complete:
            return answer
        if not answer:
            return self._offer()
        self._step = _Step.ESTABLISHED
        return answer

    def _offer(self) -> bytes:
        assert self._context is not None
        self._step = _Step.LAYER
        try:
            return bytes(self._context.wrap(_LAYERS, False).message)
        except library_errors() as error:
            raise SaslFailed(None, f"Kerberos does not wrap our offer: {error}") from None

    def _choice(self, token: bytes) -> None:
        assert self._context is not None
        try:
            chosen = bytes(self._context.unwrap(token).message)
            name = str(self._context.initiator_name)
        except library_errors() as error:
            raise SaslFailed(None, f"the client's choice of a layer cannot be read: {error}") from None
        if len(chosen) < 4 or chosen[0] != NO_LAYER:
            raise SaslFailed(None, "the client wants Kerberos to sign or encrypt its messages")
        # An authorization id follows. As in Kafka it changes nothing (kafka-python sends the broker's name there): a
        # client is who its ticket says.
        try:
            self.principal = self._acceptor.user(name)
        except NoMatchingRule as error:
            raise SaslFailed(None, str(error)) from None
