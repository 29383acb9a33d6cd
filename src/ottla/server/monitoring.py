"""What a node shows of itself, as far as it is configured: its HTTP server, its OTLP sender, its clients' metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.services import Broker
    from ottla.config.broker import BrokerConfig
    from ottla.metrics.client_metrics import ClientMetrics
    from ottla.metrics.collect import Collector
    from ottla.metrics.otlp import OtlpReporter, OtlpSender
    from ottla.metrics.sources import Sources
    from ottla.server.http_endpoint import HttpEndpoint

_HTTP: Final = "ottla.http.listen"
_OTLP: Final = "ottla.otlp.endpoint"


class Monitoring:
    """Binds its address at creation, so that a port that is in use refuses the start."""

    def __init__(self, config: BrokerConfig, *, guarded: bool) -> None:
        """`guarded`: there is an authorizer, so that not everyone may see everything."""
        self._config = config
        self.http: HttpEndpoint | None = None
        if config.opt_str(_HTTP):
            from ottla.server.http_endpoint import HttpEndpoint

            self.http = HttpEndpoint(config, guarded=guarded)
        self._collector: Collector | None = None
        self._clients: ClientMetrics | None = None
        self._sender: OtlpSender | None = None
        self._reporter: OtlpReporter | None = None

    @property
    def wanted(self) -> bool:
        """Whether anything is configured."""
        return self.http is not None or bool(self._config.opt_str(_OTLP))

    async def open(self, sources: Sources) -> None:
        """Serve, and send. Raises ConfigError for an endpoint that cannot be one."""
        if not self.wanted:
            return
        # Loaded where there is something to show: most tests and tools need none of it.
        from ottla.metrics.client_metrics import ClientMetrics
        from ottla.metrics.collect import Collector

        node, config = sources.node, self._config
        self._collector = Collector(sources)
        self._collector.start()
        if config.opt_str(_OTLP):
            from ottla.metrics.otlp import OtlpReporter, OtlpSender

            self._sender = OtlpSender(config, node.clock)
            self._sender.start()
            self._reporter = OtlpReporter(
                self._collector,
                self._sender,
                node.clock,
                config.int("ottla.otlp.interval.ms") / 1000,
                lambda: {
                    "service.name": "ottla",
                    "service.instance.id": str(node.node_id),
                    "kafka.cluster.id": node.cluster_id,
                },
                each_partition=config.bool("ottla.http.metrics.partitions"),
            )
            self._reporter.start()
        self._clients = ClientMetrics(node.clock, None if self._sender is None else self._sender.send)
        if self.http is not None:
            await self.http.open(sources, self._collector, self._clients)

    def take_from_clients(self, broker: Broker) -> None:
        """From here on, what clients send of their own metrics is kept and passed on."""
        if self._clients is None:
            return
        try:
            import opentelemetry.proto.metrics.v1.metrics_pb2  # noqa: F401
        except ImportError:
            # Without the extra `otlp` clients may send, and it is not read.
            return
        broker.telemetry.receive = self._clients.receive

    async def close(self) -> None:
        """Stop serving and sending, and release the address."""
        if self._reporter is not None:
            await self._reporter.stop()
        if self._sender is not None:
            self._sender.stop()
        if self._collector is not None:
            self._collector.stop()
        if self.http is not None:
            await self.http.close()
