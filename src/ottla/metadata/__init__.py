"""Metadata: the cluster's records, the immutable image that they make, and its publication."""
