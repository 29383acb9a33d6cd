"""Streams groups (KIP-1071): the tasks of a Kafka Streams topology, assigned and handed over by the broker."""
