"""The figures of connectors in Prometheus' text format, under the names that Kafka's JMX exporter gives them."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.connect.run.progress import Progress


def prometheus(progress: Mapping[str, Progress]) -> str:
    """The text of all figures."""
    lines: list[str] = []

    def gauge(name: str, text: str, values: Mapping[str, float]) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} gauge")
        for connector, value in values.items():
            escaped = connector.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'{name}{{connector="{escaped}",task="0"}} {value:g}')

    gauge(
        "kafka_connect_task_metrics_record_total",
        "Records that were committed.",
        {name: one.records for name, one in progress.items()},
    )
    gauge(
        "kafka_connect_task_metrics_record_rate",
        "Records per second, over the last minute.",
        {name: one.rate() for name, one in progress.items()},
    )
    gauge(
        "kafka_connect_task_error_metrics_total_records_skipped",
        "Records that were skipped because of errors.",
        {name: one.skipped for name, one in progress.items()},
    )
    gauge(
        "kafka_connect_task_metrics_offset_commit_avg_time_ms",
        "How long the last cycle took.",
        {name: one.last_cycle_ms for name, one in progress.items()},
    )
    lines.append("# HELP kafka_connect_worker_metrics_connector_count Connectors that run on this worker.")
    lines.append("# TYPE kafka_connect_worker_metrics_connector_count gauge")
    lines.append(f"kafka_connect_worker_metrics_connector_count {len(progress)}")
    return "\n".join(lines) + "\n"
