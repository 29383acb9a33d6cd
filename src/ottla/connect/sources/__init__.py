"""Connectors that read from the outside, one file or folder each."""
