"""Replaces the keys and certificates of a running node: after a change of configs, of files, or by SIGHUP.

New stores are loaded and checked in a thread, then new connections use them. If that fails, the old ones stay in force
and one ERROR says why. Certificates that are about to expire are reported in time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.errors import ConfigError
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.config.broker import BrokerConfig
    from ottla.security.audit import AuditFile
    from ottla.security.tls_material import Stamp, TlsEndpoint, TlsMaterial

_logger = logging.getLogger(__name__)

INTERVAL_KEY: Final = "ottla.ssl.reload.interval.ms"
_DEFAULT_INTERVAL_MS: Final = 60_000
_EXPIRY_EACH_S: Final = 3600.0
_WARN_DAYS: Final = (1, 7, 30)

Checked = Callable[[ApiException | None], object]


class _Loaded(NamedTuple):
    """One endpoint's new material, or why it cannot have it, for this version of its files."""

    endpoint: TlsEndpoint
    stamp: Stamp
    result: TlsMaterial | ConfigError


def reload_interval_s(config: BrokerConfig) -> float:
    """How often the files are looked at; 0 for never. Raises ConfigError."""
    text = config.static.get(INTERVAL_KEY, str(_DEFAULT_INTERVAL_MS)).strip()
    if not (text.isascii() and text.isdigit()):
        raise ConfigError.bad_value(INTERVAL_KEY, text, "milliseconds, 0 for never")
    return int(text) / 1000


class TlsReloader:
    """Owns the replacement of a node's TLS endpoints. Without endpoints it does nothing."""

    def __init__(
        self,
        endpoints: Iterable[TlsEndpoint],
        config: BrokerConfig,
        clock: Clock,
        executor: Executor,
        call_soon_threadsafe: Callable[..., object],
        audit: AuditFile | None = None,
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._config = config
        self._clock = clock
        self._executor = executor
        self._to_loop = call_soon_threadsafe
        self._audit = audit
        self._interval_s = reload_interval_s(config)
        self._file_timer: Timer | None = None
        self._expiry_timer: Timer | None = None
        self._running = False
        self._again = False
        self._stopped = False
        self._refused: dict[TlsEndpoint, Stamp] = {}
        """The versions of the files that could not be used: each is reported once."""
        self._warned: dict[tuple[TlsEndpoint, datetime], int] = {}

    def start(self) -> None:
        """Look at files and dates from now on."""
        if self._endpoints:
            self._watch_expiry()
            if self._interval_s:
                self._file_timer = self._clock.call_later(self._interval_s, self._watch_files)

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._file_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()

    # -- what makes it reload

    def update(self, config: BrokerConfig) -> None:
        """The configuration has changed, or a key was set again to the same value."""
        self._config = config
        self.reload()

    def reload(self) -> None:
        """Load all stores again."""
        if not self._endpoints or self._stopped:
            return
        if self._running:
            self._again = True
            return
        self._run(self._config, self._take)

    def check(self, config: BrokerConfig, done: Checked) -> None:
        """Check, without using it, what a configuration would put in force. `done` is called on the event loop."""
        if not self._endpoints:
            done(None)
            return

        def checked(loaded: list[_Loaded]) -> None:
            done(next((each.result for each in loaded if isinstance(each.result, ConfigError)), None))

        self._run(config, checked, exclusive=False)

    def _watch_files(self) -> None:
        self._file_timer = self._clock.call_later(self._interval_s, self._watch_files)
        if not self._running:
            self._run(self._config, self._take, only_changed=True)

    # -- in the thread

    def _load_all(self, config: BrokerConfig, only_changed: bool) -> list[_Loaded]:
        from ottla.security.tls_material import stamp_of

        loaded: list[_Loaded] = []
        for endpoint in self._endpoints:
            stamp = stamp_of(endpoint.material.config)
            if only_changed and stamp in (endpoint.material.stamp, self._refused.get(endpoint)):
                continue
            result: TlsMaterial | ConfigError
            try:
                result = endpoint.load(config)
                endpoint.check_successor(result, config)
            except ConfigError as error:
                result = error
            loaded.append(_Loaded(endpoint, stamp, result))
        return loaded

    # -- on the loop

    def _take(self, loaded: list[_Loaded]) -> None:
        refused = {each.endpoint: each for each in loaded if isinstance(each.result, ConfigError)}
        for each in refused.values():
            assert isinstance(each.result, ConfigError)
            self._refused[each.endpoint] = each.stamp
            _logger.error("%s. The old key and trust stores stay in force", each.result.message)
            self._note("stores refused", each.endpoint, each.result.message)
        for endpoint, _, result in loaded:
            if isinstance(result, ConfigError) or any(
                other.listener == endpoint.listener for other in refused
            ):
                # Both sides of a listener change together, or nodes might not trust each other.
                continue
            if result.differs(endpoint.material):
                _logger.info("New connections of %s use the changed key and trust stores", endpoint.what)
                self._note("stores reloaded", endpoint, "")
            endpoint.material = result
            self._refused.pop(endpoint, None)
        self._warn_of_expiry()

    def _note(self, event: str, endpoint: TlsEndpoint, why: str) -> None:
        if self._audit is not None:
            self._audit.event(event, {"what": endpoint.what, "why": why})

    def _run(
        self,
        config: BrokerConfig,
        then: Callable[[list[_Loaded]], object],
        *,
        only_changed: bool = False,
        exclusive: bool = True,
    ) -> None:
        """Load in a thread. One exclusive load runs at a time."""
        if exclusive:
            self._running = True

        def ended(future: Future[list[_Loaded]]) -> None:
            if exclusive:
                self._running = False
            if self._stopped:
                return
            then(future.result())
            if exclusive and self._again:
                self._again = False
                self.reload()

        future = self._executor.submit(self._load_all, config, only_changed)
        future.add_done_callback(lambda future: self._to_loop(ended, future))

    # -- expiry

    def _watch_expiry(self) -> None:
        self._expiry_timer = self._clock.call_later(_EXPIRY_EACH_S, self._watch_expiry)
        self._warn_of_expiry()

    def _warn_of_expiry(self) -> None:
        now = datetime.now(UTC)
        for endpoint in self._endpoints:
            identity = endpoint.material.identity
            if identity is None:
                continue
            certificate = min(identity.chain, key=lambda each: each.not_valid_after_utc)
            ends = certificate.not_valid_after_utc
            days = next((days for days in _WARN_DAYS if ends - now <= timedelta(days=days)), None)
            if days is None or self._warned.get((endpoint, ends), days + 1) <= days:
                continue
            self._warned[endpoint, ends] = days
            _logger.log(
                logging.ERROR if days == 1 else logging.WARNING,
                "The certificate %s of %s expires on %s, in less than %d day%s: renew it, then reload by SIGHUP",
                identity.subject,
                endpoint.what,
                f"{ends:%Y-%m-%d %H:%M} UTC",
                days,
                "" if days == 1 else "s",
            )
