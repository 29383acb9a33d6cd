"""`ottla secure init`: an authority, certificates, the administrator and strict properties for each node."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from ottla.cli.secure.folder import ADMIN, SecureFolder, SecureProblem, write_new
from ottla.cli.secure.plan import (
    MECHANISM,
    NodePlan,
    controllers_properties,
    node_properties,
    plan_nodes,
    scram_properties,
)
from ottla.clock import SystemClock
from ottla.credentials.authority import CertificateAuthority
from ottla.credentials.scram_keys import DEFAULT_ITERATIONS
from ottla.security.node_identity import NODE_URI
from ottla.wire.uuid import uuid_to_str

_PASSWORD_BYTES: Final = 24
SCRAM_ITERATIONS: Final = DEFAULT_ITERATIONS


def new_password() -> str:
    """A random password that needs no quoting in a shell, a URL or a JAAS text."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def init_cluster(
    path: Path,
    *,
    nodes: int,
    hosts: Sequence[str],
    target: Path | None,
    days: int,
    echo: Callable[[str], object],
) -> None:
    """Make everything, and print the commands that start the cluster and prove it."""
    planned = plan_nodes(nodes, hosts)
    if days < 1:
        raise SecureProblem(f"--days {days}: expected at least 1")
    folder = SecureFolder(path.absolute())
    if folder.path.exists() and any(folder.path.iterdir()):
        raise SecureProblem(f"{folder.path} is not empty; nothing is overwritten")
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.path.chmod(0o700)
    at = (target or folder.path).absolute()
    _write_identities(folder, planned, timedelta(days=days))
    for node in planned:
        write_new(folder.properties(node.name), node_properties(node, planned, at))
    password = new_password()
    bootstrap = ",".join(node.client_address for node in planned)
    write_new(folder.properties(ADMIN), scram_properties(bootstrap, str(folder.trust), ADMIN, password))
    write_new(folder.controllers, controllers_properties(folder.path))
    write_new(folder.scram, f"{MECHANISM}=[name={ADMIN},password={password},iterations={SCRAM_ITERATIONS}]\n")
    _print_commands(folder, at, planned, days, echo)


def _write_identities(folder: SecureFolder, planned: Sequence[NodePlan], lifetime: timedelta) -> None:
    authority = CertificateAuthority.create("Ottla cluster CA")
    write_new(folder.authority_key, authority.identity.pem())
    write_new(folder.trust, authority.trust_pem())
    for node in planned:
        identity = authority.issue(
            node.name, hosts=node.certificate_hosts, uris=(f"{NODE_URI}{node.id}",), lifetime=lifetime
        )
        write_new(folder.key_store(node.name), identity.pem())
    write_new(folder.key_store(ADMIN), authority.issue(ADMIN, hosts=(), lifetime=lifetime).pem())


def _print_commands(
    folder: SecureFolder, at: Path, planned: Sequence[NodePlan], days: int, echo: Callable[[str], object]
) -> None:
    clock = SystemClock()
    cluster_id = uuid_to_str(clock.random_uuid())
    controllers = ",".join(
        f"{node.id}@{node.controller_address}:{uuid_to_str(clock.random_uuid())}" for node in planned
    )
    echo(
        f"Made a certificate authority, {len(planned)} node certificates ({days} days) and the user {ADMIN}."
    )
    echo(f"Keep {folder.authority_key} apart from the nodes: its key makes new certificates.")
    if at != folder.path:
        echo(
            f"Copy ca.pem, {folder.scram.name} and the node's own two files to {at} on its machine, with their modes."
        )
    echo("\nFormat the directories of each node, once:\n")
    for node in planned:
        file, scram = (
            shlex.quote(str(at / f"{node.name}.properties")),
            shlex.quote(str(at / folder.scram.name)),
        )
        echo(
            f"  ottla storage format --config {file} --cluster-id {cluster_id}"
            f" --initial-controllers {controllers} --add-scram-file {scram}"
        )
    echo("\nStart each node:\n")
    for node in planned:
        echo(f"  ottla start --config {shlex.quote(str(at / f'{node.name}.properties'))}")
    admin = shlex.quote(str(folder.properties(ADMIN)))
    echo(f"\nSee that the cluster answers as {cluster_id}, and that it is safe:\n")
    echo(f"  ottla cluster cluster-id --command-config {admin}")
    echo(f"  ottla secure check --dir {shlex.quote(str(folder.path))}")
