"""Streams groups (KIP-1071): the broker assigns the tasks of a Kafka Streams topology to members."""
