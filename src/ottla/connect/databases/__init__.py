"""Databases through Python's drivers: addresses, connections, tables and the SQL of each kind."""
