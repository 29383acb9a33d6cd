"""Kafka, whole, for people who work in Python."""
