"""librdkafka's statistics as the metrics that kafka-python's users look for."""

from __future__ import annotations

import json
from typing import Any

INTERVAL_MS = 1000

Report = dict[str, Any]
"""librdkafka's report: numbers, texts and further reports by name."""
Metrics = dict[str, dict[str, float]]


class Statistics:
    """The latest report of the engine; it is parsed on demand."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest = "{}"

    def receive(self, report: str) -> None:
        self._latest = report

    def raw(self) -> Report:
        """The engine's whole report."""
        report: Report = json.loads(self._latest)
        return report

    def producer_metrics(self, client: dict[str, float]) -> Metrics:
        report = self.raw()
        metrics = self._common(report, "producer", client)
        metrics["producer-metrics"] |= {
            "record-queue-count": report.get("msg_cnt", 0),
            "record-queue-bytes": report.get("msg_size", 0),
            "record-send-total": report.get("txmsgs", 0),
            "batch-size-avg": _average(report, "batchsize"),
            "records-per-request-avg": _average(report, "batchcnt"),
        }
        for name, topic in report.get("topics", {}).items():
            partitions = topic.get("partitions", {}).values()
            metrics[f"producer-topic-metrics.{name}"] = {
                "record-send-total": sum(one.get("txmsgs", 0) for one in partitions),
                "byte-total": sum(one.get("txbytes", 0) for one in partitions),
            }
        return metrics

    def consumer_metrics(self, client: dict[str, float]) -> Metrics:
        report = self.raw()
        metrics = self._common(report, "consumer", client)
        group = report.get("cgrp", {})
        metrics["consumer-coordinator-metrics"] = {
            "assigned-partitions": group.get("assignment_size", 0),
            "rebalance-total": group.get("rebalance_cnt", 0),
        }
        lags = []
        for topic in report.get("topics", {}).values():
            lags += [one.get("consumer_lag", -1) for one in topic.get("partitions", {}).values()]
        metrics["consumer-fetch-manager-metrics"] = {
            "records-consumed-total": report.get("rxmsgs", 0),
            "bytes-consumed-total": report.get("rxmsg_bytes", 0),
            "records-lag-max": max(lags, default=-1),
        }
        return metrics

    def _common(self, report: Report, kind: str, client: dict[str, float]) -> Metrics:
        brokers = report.get("brokers", {}).values()
        return {
            "kafka-metrics-count": {"count": len(report)},
            f"{kind}-metrics": {
                "connection-count": sum(one.get("state") == "UP" for one in brokers),
                "request-total": report.get("tx", 0),
                "outgoing-byte-total": report.get("tx_bytes", 0),
                "response-total": report.get("rx", 0),
                "incoming-byte-total": report.get("rx_bytes", 0),
                "request-latency-avg": _latency_ms(list(brokers)),
                **client,
            },
        }


def _average(report: Report, window: str) -> float:
    topics = report.get("topics", {}).values()
    averages = [one[window]["avg"] for one in topics if one.get(window, {}).get("cnt")]
    return sum(averages) / len(averages) if averages else 0.0


def _latency_ms(brokers: list[Report]) -> float:
    averages = [one["rtt"]["avg"] / 1000 for one in brokers if one.get("rtt", {}).get("cnt")]
    return sum(averages) / len(averages) if averages else 0.0
