"""testssl.sh and sslyze judge the listeners of a cluster that `ottla secure init` made.

`OTTLA_TESTSSL=1`: four minutes and half a minute for each listener.
"""

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

TESTSSL = shutil.which("testssl") or shutil.which("testssl.sh")
SSLYZE = shutil.which("sslyze")
LISTENERS = ("CLIENTS", "BROKERS", "CONTROLLERS")
OF_THE_CERTIFICATE = {"cert_expirationStatus", "cert_notAfter", "cert_revocation"}
"""The fixture's certificates last for 30 days and name no address for revocation."""
WITH_A_CERTIFICATE = {"sessionresumption_ID", "secure_client_renego", "BREACH"}
"""What testssl.sh 3.0 cannot check on listeners that want a certificate, as it has none to show. sslyze shows one."""
WEAKNESSES = {
    "ssl_3_0_cipher_suites": ("is_tls_version_supported", False),
    "tls_1_0_cipher_suites": ("is_tls_version_supported", False),
    "tls_1_1_cipher_suites": ("is_tls_version_supported", False),
    "tls_1_2_cipher_suites": ("is_tls_version_supported", True),
    "tls_1_3_cipher_suites": ("is_tls_version_supported", True),
    "tls_compression": ("supports_compression", False),
    "openssl_ccs_injection": ("is_vulnerable_to_ccs_injection", False),
    "tls_fallback_scsv": ("supports_fallback_scsv", True),
    "heartbleed": ("is_vulnerable_to_heartbleed", False),
    "robot": ("robot_result", "NOT_VULNERABLE_RSA_NOT_SUPPORTED"),
    "session_renegotiation": ("is_vulnerable_to_client_renegotiation_dos", False),
    "tls_extended_master_secret": ("supports_ems_extension", True),
}
"""The parts of sslyze's answer, each with a field and what it has to be."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get("OTTLA_TESTSSL"), reason="takes a quarter of an hour: OTTLA_TESTSSL=1"
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


def address_of(secured: SecureCluster, listener: str) -> str:
    settings = secured.folder.properties("node-1").read_text()
    port = re.search(rf"^listeners=.*{listener}://[^,\n]*:(\d+)", settings, re.MULTILINE)
    assert port is not None
    return f"localhost:{port[1]}"


@pytest.mark.skipif(TESTSSL is None, reason="needs testssl.sh (Debian package testssl.sh)")
@pytest.mark.parametrize("listener", LISTENERS)
def test_testssl_finds_nothing_above_low(secured: SecureCluster, tmp_path: Path, listener: str) -> None:
    assert TESTSSL is not None
    result = tmp_path / "result.json"
    words = ["--quiet", "--color", "0", "--warnings", "batch", "--add-ca", secured.ca_file]
    words += ["--nodns", "none", "--ip", "127.0.0.1", "--jsonfile", str(result)]
    done = subprocess.run(
        [TESTSSL, *words, address_of(secured, listener)], capture_output=True, text=True, timeout=1500
    )
    found = json.loads(result.read_text())
    rated = {each["id"]: (each["severity"], each["finding"]) for each in found}
    assert "Done" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    assert rated["TLS1_2"][0] == rated["TLS1_3"][0] == rated["SSLv2"][0] == rated["SSLv3"][0] == "OK"
    assert rated["TLS1"][1] == rated["TLS1_1"][1] == "not offered"
    bad = {name: rating for name, rating in rated.items() if rating[0] not in ("OK", "INFO", "LOW", "DEBUG")}
    if listener != "CLIENTS":
        bad = {
            name: each for name, each in bad.items() if name not in WITH_A_CERTIFICATE or each[0] != "WARN"
        }
    assert bad.keys() <= OF_THE_CERTIFICATE, bad


@pytest.mark.skipif(SSLYZE is None, reason="needs sslyze (pip install sslyze)")
@pytest.mark.parametrize("listener", LISTENERS)
def test_sslyze_finds_no_weakness(secured: SecureCluster, tmp_path: Path, listener: str) -> None:
    assert SSLYZE is not None
    result, node = tmp_path / "result.json", str(secured.folder.path / "node-1.pem")
    words = ["--slow_connection", "--certinfo_ca_file", secured.ca_file, "--json_out", str(result)]
    words += [] if listener == "CLIENTS" else ["--cert", node, "--key", node]
    done = subprocess.run(
        [SSLYZE, *words, address_of(secured, listener)], capture_output=True, text=True, timeout=600
    )
    (server,) = json.loads(result.read_text())["server_scan_results"]
    assert server["scan_status"] == "COMPLETED", done.stdout[-3000:] + done.stderr[-3000:]
    found = server["scan_result"]
    seen = {name: (found[name]["result"] or {}).get(field) for name, (field, _) in WEAKNESSES.items()}
    assert seen == {name: expected for name, (_, expected) in WEAKNESSES.items()}
    accepted = found["tls_1_2_cipher_suites"]["result"]["accepted_cipher_suites"]
    assert accepted and all("_ECDHE_" in each["cipher_suite"]["name"] for each in accepted)
