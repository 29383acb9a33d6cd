"""Ottla and Apache Kafka side by side: same client, same settings, interleaved in one run."""
