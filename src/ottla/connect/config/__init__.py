"""Kafka's keys for workers and connectors: definitions, validation, providers of values, client overrides."""
