"""The simulator: a whole cluster in one process. The production code runs on virtual time, an in-memory network and
in-memory file systems.

One seed determines everything; `python -m ottla.testing.sim --seed N` repeats a run.
"""
