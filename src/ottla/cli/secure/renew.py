"""`ottla secure renew`: new keys and certificates with the names of the old ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ottla.cli.secure.folder import ADMIN, SecureFolder, SecureProblem, certificate_names, replace
from ottla.credentials.stores import Identity


def renew_certificates(folder: SecureFolder, days: int, echo: Callable[[str], object]) -> None:
    """Replace the certificate of each node and of the administrator; the authority stays."""
    folder.require()
    if days < 1:
        raise SecureProblem(f"--days {days}: expected at least 1")
    authority = folder.load_authority()
    names = [*(f"node-{node_id}" for node_id in folder.node_ids()), ADMIN]
    fresh: dict[str, Identity] = {}
    # All of them are made before the first is replaced: what fails leaves the old ones.
    for name in names:
        old = folder.load_current(folder.key_store(name))
        hosts, uris = certificate_names(old)
        fresh[name] = authority.issue(old.subject, hosts=hosts, uris=uris, lifetime=timedelta(days=days))
    end = authority.identity.certificate.not_valid_after_utc
    for name, identity in fresh.items():
        replace(folder.key_store(name), identity.pem())
        echo(
            f"{folder.key_store(name)}: valid until {min(end, identity.certificate.not_valid_after_utc):%Y-%m-%d}"
        )
    echo("Copy the files to the machines of the nodes. SIGHUP makes a node read its own at once.")
