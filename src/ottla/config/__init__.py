"""Kafka's configuration keys, typed: what they are, what they may be, and what they are now."""
