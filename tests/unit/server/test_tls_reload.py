"""When stores are loaded again, and when operators hear of certificates that are about to expire."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.errors import ApiException
from ottla.security.tls_material import TlsEndpoint
from ottla.server.tls_reload import TlsReloader
from ottla.testing.certificates import CertificateAuthority, write_pem
from ottla.testing.virtual_clock import VirtualClock

AUTHORITY = CertificateAuthority.create()


class AtOnce:
    """An executor without threads."""

    def submit(self, work: Any, *arguments: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future


class Scene:
    """One SASL_SSL listener on files that a test changes."""

    def __init__(self, folder: Path, lifetime: timedelta = timedelta(days=300), **settings: str) -> None:
        self.keystore, trust = folder / "key.pem", folder / "ca.pem"
        AUTHORITY.write_truststore(trust)
        self.issue(lifetime)
        self.config = BrokerConfig.single_node(
            {
                "log.dirs": "data",
                "listeners": "SASL_SSL://localhost:9093",
                "inter.broker.listener.name": "SASL_SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(trust),
            }
            | {key.replace("_", "."): text for key, text in settings.items()}
        )
        self.endpoint = TlsEndpoint(self.config, "SASL_SSL", server_side=True, sasl=True)
        self.clock = VirtualClock()
        self.reloader = TlsReloader(
            [self.endpoint],
            self.config,
            self.clock,
            cast(Executor, AtOnce()),
            lambda call, *arguments: call(*arguments),
        )
        self.reloader.start()

    def issue(self, lifetime: timedelta = timedelta(days=300), name: str = "node") -> int:
        identity = AUTHORITY.issue(name, lifetime=lifetime)
        write_pem(identity, self.keystore.with_suffix(".new")).rename(self.keystore)
        return identity.certificate.serial_number

    @property
    def serial(self) -> int:
        assert self.endpoint.material.identity is not None
        return self.endpoint.material.identity.certificate.serial_number


def test_files_are_looked_at_every_interval(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    old, new = scene.serial, scene.issue()
    scene.clock.advance(59)
    assert scene.serial == old
    scene.clock.advance(2)
    assert scene.serial == new


def test_a_refused_file_is_reported_once_and_a_good_one_taken_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    old = scene.serial
    scene.keystore.write_text("-----BEGIN CERTIFICATE-----")
    scene.clock.advance(600)
    assert scene.serial == old
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    new = scene.issue()
    scene.clock.advance(60)
    assert scene.serial == new


def test_interval_zero_never_looks(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ottla_ssl_reload_interval_ms="0")
    old = scene.serial
    new = scene.issue()
    scene.clock.advance(10_000)
    assert scene.serial == old
    scene.reloader.reload()
    assert scene.serial == new
    with pytest.raises(ConfigError, match="0 for never"):
        Scene(tmp_path, ottla_ssl_reload_interval_ms="soon")


def test_another_subject_needs_leave(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    old = scene.serial
    new = scene.issue(name="other")
    scene.reloader.reload()
    assert scene.serial == old
    seen: list[ApiException | None] = []
    allowed = BrokerConfig(dict(scene.config.static) | {"ssl.allow.dn.changes": "true"})
    scene.reloader.check(allowed, seen.append)
    assert seen == [None] and scene.serial == old
    scene.reloader.update(allowed)
    assert scene.serial == new


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [(20, logging.WARNING, "30 days"), (5, logging.WARNING, "7 days"), (0.5, logging.ERROR, "1 day:")],
)
def test_expiry_is_reported_once_for_each_threshold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: float, level: int, words: str
) -> None:
    scene = Scene(tmp_path, timedelta(days=days))
    scene.clock.advance(100_000)
    said = [record for record in caplog.records if "expires on" in record.getMessage()]
    assert [record.levelno for record in said] == [level]
    assert words in said[0].getMessage() and "CN=node" in said[0].getMessage()
    scene.issue(timedelta(days=300))
    scene.reloader.reload()
    assert len([record for record in caplog.records if "expires on" in record.getMessage()]) == 1


def test_sasl_ssl_asks_for_certificates_only_by_the_listeners_own_key(tmp_path: Path) -> None:
    """KIP-684."""
    assert Scene(tmp_path, ssl_client_auth="required").endpoint.material.config.client_auth == "none"
    own = {"listener.name.sasl_ssl.ssl.client.auth": "required"}
    scene = Scene(tmp_path)
    config = BrokerConfig(dict(scene.config.static) | own)
    assert scene.endpoint.load(config).config.client_auth == "required"
