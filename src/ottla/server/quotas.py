"""The quotas of a node: made from the configuration, kept up to date with the metadata."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.security.quotas.entities import ip_rates
from ottla.security.quotas.managers import ClientQuotas, QuotaWindows

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import ClientQuotaEntity, MetadataImage
    from ottla.metadata.publisher import Publisher

_logger = logging.getLogger(__name__)


def make_quotas(config: BrokerConfig) -> ClientQuotas:
    """No quota is in force until the metadata has one."""
    return ClientQuotas(
        QuotaWindows(config.int("quota.window.num"), config.int("quota.window.size.seconds") * 1000),
        QuotaWindows(
            config.int("controller.quota.window.num"),
            config.int("controller.quota.window.size.seconds") * 1000,
        ),
    )


def quotas_publisher(quotas: ClientQuotas) -> Publisher:
    """Follows the quotas of the metadata."""
    last: Mapping[ClientQuotaEntity, Mapping[str, float]] = {}

    def publish(delta: MetadataDelta, image: MetadataImage) -> None:
        nonlocal last
        if image.client_quotas is last or not (image.client_quotas or last):
            return
        last = image.client_quotas
        quotas.update(image.client_quotas)
        _update_ips(quotas, ip_rates(image.client_quotas), lambda: last is image.client_quotas)

    return publish


def _update_ips(
    quotas: ClientQuotas, rates: dict[str | None, float], still_in_force: Callable[[], bool]
) -> None:
    """Put the connection rates in force. Host names are looked up in a thread, and count when they are known."""
    default = rates.pop(None, None)
    by_address = {name: rate for name, rate in rates.items() if name is not None and _is_address(name)}
    quotas.ips.update(by_address, default)
    hosts = {name: rate for name, rate in rates.items() if name is not None and name not in by_address}
    if not hosts:
        return

    def look_up() -> dict[str, float]:
        return {address: rate for name, rate in hosts.items() for address in _addresses(name)}

    def looked_up(future: asyncio.Future[dict[str, float]]) -> None:
        if not future.cancelled() and still_in_force():
            quotas.ips.update({**future.result(), **by_address}, default)

    asyncio.get_running_loop().run_in_executor(None, look_up).add_done_callback(looked_up)


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except OSError:
            continue
        return True
    return False


def _addresses(name: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        _logger.warning(
            "The connection quota of host %s has no effect: it does not resolve (%s)", name, error
        )
        return []
