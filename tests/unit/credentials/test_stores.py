"""Key and trust stores in Kafka's three forms; `keytool` makes those that only Java writes."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.credentials.contexts import TlsConfig, client_context, server_context
from ottla.credentials.errors import CredentialsError
from ottla.credentials.names import distinguished_name
from ottla.credentials.secret import Secret
from ottla.credentials.stores import StoreSource, load_anchors, load_identity, pem_of
from ottla.testing.certificates import CertificateAuthority, write_pem, write_pkcs12

needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is part of a JDK")


def now():
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def authority():
    return CertificateAuthority.create()


def test_a_pem_key_store_has_key_and_chain(authority, tmp_path):
    path = write_pem(authority.issue("broker1"), tmp_path / "broker1.pem")
    identity = load_identity(StoreSource(type="PEM", location=str(path)), now())
    assert identity.subject == "CN=broker1"
    assert len(identity.chain) == 2


def test_pem_text_may_stand_in_the_configuration_itself(authority):
    identity = authority.issue("inline")
    pem = identity.pem().decode()
    source = StoreSource(type="PEM", key=Secret(pem), certificates=pem_of(identity.chain))
    assert load_identity(source, now()).subject == "CN=inline"
    with pytest.raises(CredentialsError, match=r"ssl\.keystore\.type=PEM"):
        load_identity(StoreSource(type="JKS", key=Secret(pem), certificates="x"), now())


def test_a_pkcs12_store_needs_its_password(authority, tmp_path):
    path = write_pkcs12(authority.issue("broker2"), tmp_path / "broker2.p12", "changeit")
    identity = load_identity(StoreSource("PKCS12", str(path), Secret("changeit")), now())
    assert identity.subject == "CN=broker2"
    with pytest.raises(CredentialsError, match="its password is wrong"):
        load_identity(StoreSource("PKCS12", str(path), Secret("other")), now())


@needs_keytool
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_that_keytool_made_are_read(authority, tmp_path, kind):
    store = tmp_path / "keystore"
    trust = tmp_path / "truststore"
    ca = authority.write_truststore(tmp_path / "ca.pem")
    keytool(
        "-genkeypair", "-keystore", store, "-storetype", kind, "-storepass", "changeit", "-keypass", "changeit",
        "-alias", "broker", "-dname", "CN=broker3, O=Ottla, C=CZ", "-keyalg", "EC", "-validity", "10",
    )  # fmt: skip
    keytool(
        "-importcert", "-keystore", trust, "-storetype", kind, "-storepass", "changeit", "-noprompt",
        "-alias", "ca", "-file", ca,
    )  # fmt: skip
    identity = load_identity(StoreSource(kind, str(store), Secret("changeit")), now())
    assert identity.subject == "CN=broker3,O=Ottla,C=CZ"
    anchors = load_anchors(StoreSource(kind, str(trust), Secret("changeit")))
    assert [distinguished_name(each.subject) for each in anchors] == ["CN=Ottla test CA"]
    with pytest.raises(CredentialsError, match="password is wrong"):
        load_identity(StoreSource(kind, str(store), Secret("wrong1")), now())


@needs_keytool
def test_a_jceks_store_is_refused_with_the_command_that_converts_it(tmp_path):
    store = tmp_path / "keystore"
    keytool(
        "-genkeypair", "-keystore", store, "-storetype", "JCEKS", "-storepass", "changeit", "-keypass", "changeit",
        "-alias", "b", "-dname", "CN=b", "-keyalg", "EC",
    )  # fmt: skip
    with pytest.raises(CredentialsError, match="keytool -importkeystore"):
        load_identity(StoreSource("JKS", str(store), Secret("changeit")), now())


def keytool(*arguments):
    command = ["keytool", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_an_expired_certificate_is_named_with_its_date(authority, tmp_path):
    path = write_pem(authority.issue("old", lifetime=timedelta(days=-3)), tmp_path / "old.pem")
    with pytest.raises(CredentialsError, match=r"CN=old .* expired on 20"):
        load_identity(StoreSource(type="PEM", location=str(path)), now())


def test_a_key_that_does_not_fit_its_certificate_is_refused(authority, tmp_path):
    one, other = authority.issue("one"), authority.issue("other")
    path = tmp_path / "mixed.pem"
    key = one.pem().split(b"-----BEGIN CERTIFICATE-----")[0]
    path.write_bytes(key + pem_of(other.chain).encode())
    with pytest.raises(CredentialsError, match="does not belong to the certificate CN=other"):
        load_identity(StoreSource(type="PEM", location=str(path)), now())


def test_a_chain_out_of_order_is_refused(authority, tmp_path):
    identity = authority.issue("leaf")
    stranger = CertificateAuthority.create("stranger").identity.certificate
    path = tmp_path / "chain.pem"
    path.write_bytes(identity.pem() + pem_of([stranger]).encode())
    with pytest.raises(CredentialsError, match="out of order"):
        load_identity(StoreSource(type="PEM", location=str(path)), now())


@pytest.mark.parametrize("damage", [b"", b"\xfe\xed\xfe\xed", b"\xfe\xed\xfe\xed" + bytes(40), b"no store"])
def test_damaged_stores_are_refused_with_a_sentence(tmp_path, damage):
    path = tmp_path / "store"
    path.write_bytes(damage)
    for kind in ("JKS", "PKCS12", "PEM"):
        password = None if kind == "PEM" else Secret("changeit")
        with pytest.raises(CredentialsError):
            load_identity(StoreSource(kind, str(path), password), now())


def test_a_missing_file_is_named():
    with pytest.raises(CredentialsError, match="/nowhere/at/all: No such file"):
        load_identity(StoreSource("PEM", "/nowhere/at/all"), now())


def test_other_types_of_names_print_as_java_prints_them():
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "CZ"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ottla, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, " broker #1 "),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.cz"),
        ]
    )
    # As X500Principal.getName() of a JDK 17 prints it.
    assert distinguished_name(name) == (
        "1.2.840.113549.1.9.1=#160661 40622e637a".replace(" ", "")
        + ",CN=\\ broker \\#1\\ ,O=Ottla\\, Inc.,C=CZ"
    )


def test_contexts_for_both_sides(authority, tmp_path):
    store = write_pem(authority.issue("broker"), tmp_path / "b.pem")
    trust = authority.write_truststore(tmp_path / "ca.pem")
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.client.auth": "required",
    }
    context, identity = server_context(TlsConfig.of(keys), now())
    assert identity.subject == "CN=broker"
    assert context.minimum_version.name == "TLSv1_2"
    assert client_context(TlsConfig.of(keys), now()).check_hostname
    no_names = TlsConfig.of(keys | {"ssl.endpoint.identification.algorithm": ""})
    assert not client_context(no_names, now()).check_hostname


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ssl.enabled.protocols", "TLSv1.1", "TLSv1.1 is not supported"),
        ("ssl.client.auth", "sometimes", "expected none, requested, required"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "leaves out TLS_AES_256_GCM_SHA384"),
        ("ssl.cipher.suites", "NO_SUCH_SUITE", "leaves out"),
    ],
)
def test_settings_that_cannot_be_granted_are_refused(authority, tmp_path, key, value, message):
    store = write_pem(authority.issue("broker"), tmp_path / "b.pem")
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store), key: value}
    with pytest.raises(CredentialsError, match=message):
        server_context(TlsConfig.of(keys), now())


def test_a_secret_does_not_show_itself():
    secret = Secret("open sesame")
    assert "sesame" not in f"{secret!r} {secret} {StoreSource(password=secret)!r}"
    assert secret.matches("open sesame")
    assert not secret.matches("open")
