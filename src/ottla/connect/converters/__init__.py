"""Converters: bytes to Connect's data and back. One file per family; `registry.py` knows them by name."""
