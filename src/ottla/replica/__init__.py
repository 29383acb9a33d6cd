"""Replicas of partitions: leadership, appending, reading, fetch sessions, waiting requests."""
