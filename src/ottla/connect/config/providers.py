"""Values of providers in connector configurations: resolved when a connector starts, never stored or shown."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.errors import ConfigError
from ottla.config.providers import Providers
from ottla.connect.failures import ConfigInvalid


class ConnectorProviders:
    """The providers that the worker's file names."""

    def __init__(self, worker_keys: Mapping[str, str]) -> None:
        try:
            self._providers = Providers(worker_keys)
        except ConfigError as error:
            raise ConfigInvalid(str(error)) from None

    def resolve(self, config: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """The configuration with all references replaced, and the values that replaced them."""
        resolved: dict[str, str] = {}
        secrets: list[str] = []
        for key, text in config.items():
            try:
                value = self._providers.resolve(key, text)
            except ConfigError as error:
                raise ConfigInvalid(str(error)) from None
            if value != text:
                secrets += [value, *value.splitlines()]
            resolved[key] = value
        return resolved, secrets
