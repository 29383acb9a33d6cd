"""Coordinators: groups, transactions and share state, each a state machine over a partition of its internal topic."""
