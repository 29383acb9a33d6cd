"""Connectors that write to the outside, one file or folder each."""
