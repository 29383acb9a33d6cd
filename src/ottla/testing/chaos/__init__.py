"""Chaos tests on real processes: a cluster under load, faults, and a checker of what the clients saw.

`python -m ottla.testing.chaos --minutes 5` runs it. The history of every run is kept.
"""
