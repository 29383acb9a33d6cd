"""The table of broker and topic keys: type, default, valid values, and how a key may be changed.

`configs.jsonl` holds the table of Kafka 4.3. The few defaults that differ are here, with the reason.
`broker.py` and `topic.py` hold the values of a running broker.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from ottla import limits
from ottla.config.errors import ConfigError
from ottla.config.validators import Check, compile_check
from ottla.config.values import Value
from ottla.credentials.secret import HIDDEN, Secret
from ottla.wire.enums import ConfigType

DATA_DIRECTORY: Final = "./ottla-data"

OWN_DEFAULTS: Final = {
    # Kafka's are unlimited: a client that leaks connections would use up the broker's memory.
    "max.connections": str(limits.MAX_CONNECTIONS),
    "max.connections.per.ip": str(limits.MAX_CONNECTIONS_PER_IP),
    # Kafka's is under /tmp, which many systems clear.
    "log.dir": DATA_DIRECTORY,
}
"""Defaults that differ from Kafka's on purpose."""

REQUIRED: Final = "<required>"


class UpdateMode(Enum):
    """Whether a broker key can be changed while the broker runs, for one broker or for all."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_BITS: Final = {ConfigType.INT: 31, ConfigType.SHORT: 15, ConfigType.LONG: 63}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+$")


class ConfigDef(msgspec.Struct, frozen=True):
    """One configuration key."""

    name: str
    type: ConfigType
    default: str | None
    """As text, before parsing; None is Kafka's null. Never `REQUIRED`."""
    required: bool
    importance: str
    update_mode: UpdateMode
    internal: bool
    check: Check | None

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def read_only(self) -> bool:
        return self.update_mode is UpdateMode.READ_ONLY

    def parse(self, text: str | None) -> Value:
        """The typed value of a text. Raises a ConfigError that says what was expected."""
        value = None if text is None else self._convert(text)
        expected = self.check(value) if self.check is not None else None
        if expected is not None:
            raise ConfigError.bad_value(self.name, self._shown(text), expected)
        return value

    def _shown(self, text: str | None) -> str | None:
        return "[hidden]" if self.sensitive else text

    def _convert(self, text: str) -> Value:
        trimmed = text.strip()
        if self.type in _BITS:
            bits = _BITS[self.type]
            value = int(trimmed) if _INTEGER.match(trimmed) and len(trimmed) < 25 else None
            if value is None or not -(1 << bits) <= value < 1 << bits:
                raise ConfigError.bad_value(self.name, text, f"a number of type {self.type.name}")
            return value
        if self.type is ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise ConfigError.bad_value(self.name, text, "true or false")
            return trimmed.lower() == "true"
        if self.type is ConfigType.DOUBLE:
            try:
                number = float(trimmed)
            except ValueError:
                number = math.nan
            if math.isnan(number):
                raise ConfigError.bad_value(self.name, text, "a number of type DOUBLE")
            return number
        if self.type is ConfigType.LIST:
            return self._split(text, trimmed)
        return Secret(text) if self.type is ConfigType.PASSWORD else trimmed

    def _split(self, text: str, trimmed: str) -> tuple[str, ...]:
        words = [word.strip() for word in trimmed.split(",")] if trimmed else []
        if "" in words:
            raise ConfigError.bad_value(self.name, text, "a list without empty elements")
        return tuple(dict.fromkeys(words))


class _Row(msgspec.Struct):
    scope: str
    name: str
    type: str
    default: str | None
    importance: str
    valid: str | None = None
    internal: bool = False
    update: str = UpdateMode.READ_ONLY.value


def _load() -> tuple[dict[str, ConfigDef], dict[str, ConfigDef]]:
    scopes: dict[str, dict[str, ConfigDef]] = {"broker": {}, "topic": {}}
    text = Path(__file__).with_name("configs.jsonl").read_bytes()
    for row in msgspec.json.Decoder(_Row).decode_lines(text):
        is_topic = row.scope == "topic"
        default = row.default if is_topic else OWN_DEFAULTS.get(row.name, row.default)
        scopes[row.scope][row.name] = ConfigDef(
            name=row.name,
            type=ConfigType[row.type],
            default=None if default == REQUIRED else default,
            required=default == REQUIRED,
            importance=row.importance,
            update_mode=UpdateMode.CLUSTER_WIDE if is_topic else UpdateMode(row.update),
            internal=row.internal,
            check=compile_check(row.valid),
        )
    return scopes["broker"], scopes["topic"]


BROKER_KEYS, TOPIC_KEYS = _load()

MIRROR_OFFSETS: Final = "ottla.mirror.offsets"
"""Ottla's only topic key. It is internal: descriptions show it only where it is set, so they stay Kafka's."""
TOPIC_KEYS[MIRROR_OFFSETS] = ConfigDef(
    name=MIRROR_OFFSETS,
    type=ConfigType.BOOLEAN,
    default="false",
    required=False,
    importance="LOW",
    update_mode=UpdateMode.CLUSTER_WIDE,
    internal=True,
    check=compile_check(None),
)


def _own(name: str, type: ConfigType, default: str | None, valid: str | None = None) -> ConfigDef:
    return ConfigDef(
        name=name,
        type=type,
        default=default,
        required=False,
        importance="MEDIUM",
        update_mode=UpdateMode.READ_ONLY,
        internal=False,
        check=compile_check(valid),
    )


OWN_KEYS: Final = {
    key.name: key
    for key in (
        _own("ottla.bootstrap.listeners", ConfigType.LIST, ""),
        _own("ottla.processes", ConfigType.STRING, "1"),
        _own("ottla.processes.log.dirs", ConfigType.STRING, None),
        _own("ottla.processes.node.id.step", ConfigType.INT, "1000", "[1,...]"),
        _own("ottla.processes.pinned", ConfigType.BOOLEAN, "true"),
        _own("ottla.processes.port.step", ConfigType.INT, "100", "[1,...]"),
        _own("ottla.http.listen", ConfigType.STRING, None),
        _own("ottla.http.token", ConfigType.PASSWORD, None),
        _own("ottla.http.ssl", ConfigType.BOOLEAN, "false"),
        _own("ottla.http.debug", ConfigType.BOOLEAN, "false"),
        _own("ottla.http.metrics.partitions", ConfigType.BOOLEAN, "true"),
        _own("ottla.otlp.endpoint", ConfigType.STRING, None),
        _own("ottla.otlp.headers", ConfigType.PASSWORD, None),
        _own("ottla.otlp.interval.ms", ConfigType.INT, "60000", "[1000,...]"),
    )
}
"""Keys that Kafka does not have. It ignores them with a warning, so that a file can be used by both."""

EXTENSION_KEYS: Final = frozenset(
    {
        "allow.everyone.if.no.acl.found",
        "ottla.audit.log.file",
        "ottla.max.unauthenticated.connections",
        "ottla.node.identity",
        "ottla.node.principals",
        "ottla.plaintext.listeners",
        "ottla.security.profile",
        "ottla.ssl.reload.interval.ms",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "super.users",
    }
)
"""Keys of Kafka's own plug-ins, which a server.properties can contain, and keys of Ottla alone."""


def text_of(value: Value) -> str | None:
    """The text that Kafka prints for a typed value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        mantissa = mantissa.rstrip("0")
    if "." not in mantissa or mantissa.endswith("."):
        mantissa = mantissa.rstrip(".") + ".0"
    return f"{mantissa}E{int(exponent)}"
