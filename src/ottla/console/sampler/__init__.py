"""Looks at a cluster again and again, and keeps what it saw: offsets, sizes, groups, rates, verdicts."""
