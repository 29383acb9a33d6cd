"""Protobuf schemas: protoc in a process of its own, descriptors as text, and models to compare."""
