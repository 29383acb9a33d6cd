"""Reads records straight from partitions by Fetch: ranges, single records, batches, and the live end of topics."""
