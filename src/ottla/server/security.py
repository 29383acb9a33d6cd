"""The authorizer and the audit file of a node, as far as they are configured. The authorizer follows the metadata."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener
from ottla.security.node_identity import is_anonymous
from ottla.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.publisher import Publisher
    from ottla.security.audit import AuditFile
    from ottla.security.authorizer import Authorizer

_AUDIT_KEY: Final = "ottla.audit.log.file"
_STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def make_authorizer(config: BrokerConfig) -> Authorizer | None:
    """The StandardAuthorizer, if `authorizer.class.name` names it. Raises ConfigError."""
    name = config.str("authorizer.class.name").strip()
    if not name:
        return None
    if name != _STANDARD_AUTHORIZER:
        raise ConfigError.bad_value("authorizer.class.name", name, _STANDARD_AUTHORIZER)
    # Most nodes of a developer have none.
    from ottla.security.authorizer import Authorizer

    super_users = config.static.get("super.users", "")
    everyone = config.static.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true"
    try:
        authorizer = Authorizer(super_users, allow_everyone_if_no_acl_found=everyone)
    except ValueError as error:
        raise ConfigError(f"Invalid configuration {error}", key="super.users") from None
    for listener in config.listeners:
        if _is_for_nodes(config, listener) and is_anonymous(config, listener):
            _check_nodes_may_enter(authorizer, listener)
    return authorizer


def _is_for_nodes(config: BrokerConfig, listener: Listener) -> bool:
    return (
        listener.name in config.controller_listener_names
        or listener.name == config.inter_broker_listener_name
    )


def _check_nodes_may_enter(authorizer: Authorizer, listener: Listener) -> None:
    if not authorizer.is_super_user(str(ANONYMOUS)):
        raise ConfigError(
            f"With an authorizer, the nodes that connect to listener {listener.name} must be super users, and on a "
            f"{listener.protocol.name} listener without client authentication they are {ANONYMOUS}: add it to "
            "super.users, or authenticate the nodes by SASL or by ssl.client.auth=required",
            key="super.users",
        )


def authorizer_publisher(authorizer: Authorizer) -> Publisher:
    """Follows the ACLs of the metadata. The first image is the whole of what this node has read at its start."""

    def publish(delta: MetadataDelta, image: MetadataImage) -> None:
        authorizer.update(image.acls)
        authorizer.complete_loading()

    return publish


def open_audit(config: BrokerConfig, clock: Clock, executor: Executor) -> AuditFile | None:
    """The file that `ottla.audit.log.file` names, if it does. Raises ConfigError."""
    path = config.static.get(_AUDIT_KEY, "").strip()
    if not path:
        return None
    from ottla.security.audit import AuditFile

    return AuditFile(path, clock, executor)
