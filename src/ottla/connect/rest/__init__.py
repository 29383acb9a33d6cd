"""Kafka Connect's REST API, as Kafka 4.3.1 serves it."""
