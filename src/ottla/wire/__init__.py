"""The Kafka protocol as bytes: schema table, message classes, codecs, headers and frames.

Everything here is free of I/O. Messages are reached through `ottla.wire.messages`.
"""
