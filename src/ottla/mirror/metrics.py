"""Figures of a running mirror for Prometheus, at an address of its own; MirrorMaker 2's names where it has them."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Final

from ottla.mirror.failures import MirrorError
from ottla.mirror.flow import PartitionState
from ottla.mirror.mirror import FlowDriver

_logger = logging.getLogger(__name__)

_SLOWEST_S: Final = 5.0
"""How long a client may take to ask and to read."""
_FAMILIES: Final[tuple[tuple[str, str, str, Callable[[PartitionState], int]], ...]] = (
    (
        "kafka_connect_mirror_mirrorsourceconnector_record_count",
        "counter",
        "Records copied since the flow began.",
        lambda state: state.records,
    ),
    (
        "kafka_connect_mirror_mirrorsourceconnector_byte_count",
        "counter",
        "Bytes of batches copied since the flow began.",
        lambda state: state.size,
    ),
    (
        "ottla_mirror_lag_offsets",
        "gauge",
        "Offsets of the source that were not copied at the end of the last cycle.",
        lambda state: state.lag,
    ),
    (
        "ottla_mirror_partition_stopped",
        "gauge",
        "1 if the partition cannot go on by itself.",
        lambda state: int(state.stopped is not None),
    ),
)


def prometheus(drivers: Iterable[FlowDriver]) -> str:
    """The page: flows, then their partitions under the target's names of topics."""
    flows = [driver for driver in drivers if driver.config.enabled]
    lines = [
        "# HELP ottla_mirror_flow_running 0 if the flow ended with a failure.",
        "# TYPE ottla_mirror_flow_running gauge",
    ]
    lines += [
        f"ottla_mirror_flow_running{{{_names(driver)}}} {int(driver.failure is None)}" for driver in flows
    ]
    found = [
        (f'{_names(driver)},topic="{state.remote.topic}",partition="{state.remote.partition}"', state)
        for driver in flows
        if driver.flow is not None
        for state in list(driver.flow.partitions.values())
    ]
    for name, kind, text, value in _FAMILIES:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{labels}}} {value(state)}" for labels, state in found]
    return "\n".join(lines) + "\n"


def _names(driver: FlowDriver) -> str:
    return f'source="{driver.config.source}",target="{driver.config.target}"'


class MetricsPage:
    """Serves `/metrics` in a thread, one request at a time."""

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise MirrorError(f"--metrics {address} must be HOST:PORT, such as localhost:9404")
        host = host.strip("[]")

        class Server(TCPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            allow_reuse_address = True

            def handle_error(self, request: object, client_address: object) -> None:
                _logger.debug("a client of /metrics went away", exc_info=True)

        class Handler(BaseHTTPRequestHandler):
            timeout = _SLOWEST_S

            def do_GET(self) -> None:
                known = self.path.partition("?")[0] == "/metrics"
                body = (text() if known else "Only /metrics is here.\n").encode()
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        try:
            self._server = Server((host, int(port)), Handler)
        except OSError as error:
            raise MirrorError(f"--metrics {address}: {error.strerror or error}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="mirror-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends, and frees the address."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
