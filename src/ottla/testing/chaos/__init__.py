"""Faults on real processes: a cluster under load, things done to it, and a checker for what its clients saw.

`python -m ottla.testing.chaos --minutes 5` runs it; the history of every run stays behind to be read.
"""
