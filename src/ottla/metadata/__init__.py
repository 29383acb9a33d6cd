"""Metadata: the cluster's records, the immutable image they add up to, and who is told when it changes."""
