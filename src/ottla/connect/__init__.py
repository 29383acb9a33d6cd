"""Kafka Connect for people who work in Python: connectors move data between topics and other systems.

A worker is a client of a cluster: topics and groups are its only ledger. `spi.py` says what a connector is.
"""
