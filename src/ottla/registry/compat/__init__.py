"""Compatibility of schemas, one module per format: whether a reader's schema can read what a writer's wrote."""
