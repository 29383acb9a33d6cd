"""Clients that log in over TLS by SCRAM and leave again: what a login costs the broker."""

from __future__ import annotations

import time
from contextlib import closing

from bench.load import Load
from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings, SecuritySettings


def logins(load: Load) -> dict[str, float]:
    """Logins a second, one after the other; a Python client is the limit, the broker's CPU is the figure."""
    host, _, port = load.bootstrap.rpartition(":")
    given = load.security
    security = SecuritySettings(
        protocol=given["security.protocol"],
        ca_file=given.get("ssl.ca.location"),
        mechanism=given["sasl.mechanism"],
        user=given["sasl.username"],
        password=given["sasl.password"],
    )
    settings = ClusterSettings(bootstrap=((host, int(port)),), security=security)
    begin = time.perf_counter()
    for _ in range(load.records):
        with closing(Cluster(settings)) as client:
            client.any()
    return {"seconds": time.perf_counter() - begin}
