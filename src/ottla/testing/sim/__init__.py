"""A whole cluster in one process: the production code on virtual time, an in-memory network and file systems.

Everything that happens follows from one seed; `python -m ottla.testing.sim --seed N` runs it again.
"""
