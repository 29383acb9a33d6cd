"""What a node shows of itself over HTTP: metrics in Prometheus' format, health, stalls and profiles.

The parts of the node count and keep state; this package reads them when it is asked, and changes nothing.
"""
