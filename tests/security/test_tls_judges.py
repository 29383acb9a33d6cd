"""testssl.sh judges the listeners of a cluster that `ottla secure init` made: `OTTLA_TESTSSL=1`, three minutes each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.secure import SecureCluster

PROGRAM = shutil.which("testssl") or shutil.which("testssl.sh")
LISTENERS = ("CLIENTS", "BROKERS", "CONTROLLERS")
OF_THE_CERTIFICATE = {"cert_expirationStatus", "cert_notAfter", "cert_revocation"}
"""The fixture's certificates last for 30 days and name no address for revocation."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAM is None or not os.environ.get("OTTLA_TESTSSL"),
        reason="takes nine minutes: needs OTTLA_TESTSSL=1 and testssl.sh (Debian package testssl.sh)",
    ),
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    made = SecureCluster(tmp_path_factory.mktemp("judged"), 1)
    try:
        yield made.start()
        assert "Traceback" not in made.logs(), made.logs()
    finally:
        made.kill_all()


@pytest.mark.parametrize("listener", LISTENERS)
def test_testssl_finds_nothing_above_low(secured: SecureCluster, tmp_path: Path, listener: str) -> None:
    settings = secured.folder.properties("node-1").read_text()
    port = re.search(rf"^listeners=.*{listener}://[^,\n]*:(\d+)", settings, re.MULTILINE)
    assert port is not None and PROGRAM is not None
    result = tmp_path / "result.json"
    words = ["--quiet", "--color", "0", "--warnings", "batch", "--add-ca", secured.ca_file]
    words += ["--nodns", "none", "--ip", "127.0.0.1", "--jsonfile", str(result)]
    done = subprocess.run(
        [PROGRAM, *words, f"localhost:{port[1]}"], capture_output=True, text=True, timeout=1500
    )
    found = json.loads(result.read_text())
    rated = {each["id"]: (each["severity"], each["finding"]) for each in found}
    assert "Done" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    assert rated["TLS1_2"][0] == rated["TLS1_3"][0] == rated["SSLv3"][0] == "OK"
    assert rated["TLS1"][1] == rated["TLS1_1"][1] == "not offered"
    bad = {name: rating for name, rating in rated.items() if rating[0] not in ("OK", "INFO", "LOW", "DEBUG")}
    assert bad.keys() <= OF_THE_CERTIFICATE, bad
