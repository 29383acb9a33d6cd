"""Kafka's configuration keys with types: their definitions, valid values, and effective values."""
