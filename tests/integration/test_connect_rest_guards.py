"""REST behind TLS and logins: who gets in, which headers answers have, where /admin is."""

import base64
import contextlib
import json
import ssl
import urllib.error
import urllib.request

import pytest

from integration.connect_rest import STRINGS, eventually
from ottla.connect.config.worker import worker_config
from ottla.connect.failures import ConfigInvalid, ConnectError
from ottla.connect.worker import Worker
from ottla.credentials.authority import CertificateAuthority
from ottla.credentials.stores import pem_of
from ottla.testing.running import running_broker

EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@contextlib.contextmanager
def running(broker, **keys):
    given = {**STRINGS, "bootstrap.servers": broker.bootstrap, "listeners": "http://127.0.0.1:0"}
    worker = Worker(worker_config({**given, **{key.replace("_", "."): value for key, value in keys.items()}}))
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def ask(url, *, method="GET", login=None, context=None, headers=(), body=None):
    """The status, the headers and the body of an answer."""
    request = urllib.request.Request(url, method=method, headers=dict(headers), data=body)
    if login is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """The keys of REST's TLS, and what a client trusts."""
    folder = tmp_path_factory.mktemp("tls")
    authority = CertificateAuthority.create()
    identity = authority.issue("worker")
    from cryptography.hazmat.primitives import serialization

    private = identity.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "keystore.pem").write_text(private.decode() + pem_of(identity.chain))
    authority.write_truststore(folder / "trust.pem")
    keys = {
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.keystore.location": str(folder / "keystore.pem"),
        "listeners.https.ssl.truststore.type": "PEM",
        "listeners.https.ssl.truststore.location": str(folder / "trust.pem"),
    }
    return keys, ssl.create_default_context(cafile=str(folder / "trust.pem"))


def test_workers_with_tls_and_logins_forward_to_their_leader(broker, certificates, tmp_path):
    keys, trusting = certificates
    (tmp_path / "logins.properties").write_text("anna=secret\n")
    (tmp_path / "jaas.conf").write_text(
        "KafkaConnect { org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required\n"
        f' file="{tmp_path}/logins.properties"; }};\n'
    )
    (tmp_path / "in.txt").write_text("a\n")
    shared = {
        "group.id": "guarded",
        "config.storage.topic": "guarded-configs",
        "offset.storage.topic": "guarded-offsets",
        "status.storage.topic": "guarded-status",
        "offset.storage.partitions": "1",
        "listeners": "https://127.0.0.1:0",
        "rest.extension.classes": EXTENSION,
        **keys,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={tmp_path}/jaas.conf")
        with running(broker, **shared) as first:
            eventually(lambda: first.health()[0] == "healthy")
            with running(broker, **shared) as second:
                eventually(lambda: second.health()[0] == "healthy")
                url = f"https://127.0.0.1:{second.port}/connectors"
                config = {
                    "connector.class": "FileStreamSource",
                    "file": f"{tmp_path}/in.txt",
                    "topic": "guarded",
                }
                body = json.dumps({"name": "one", "config": config}).encode()
                given = {"method": "POST", "context": trusting, "body": body}
                headers = {"Content-Type": "application/json"}
                for login in (None, "anna:wrong", "bert:secret", "anna"):
                    status, found, _ = ask(url, login=login, headers=headers, **given)
                    assert (status, found["WWW-Authenticate"]) == (401, 'Basic realm="Connect"')
                # The second worker does not lead: it forwards with the same login, over TLS.
                status, _, answer = ask(url, login="anna:secret", headers=headers, **given)
                assert status == 201, answer
                with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                    ask(url, login="anna:secret")


def test_admin_has_its_own_listener_and_answers_have_the_headers_of_the_config(broker):
    rules = 'set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store"'
    keys = {
        "admin.listeners": "http://127.0.0.1:0",
        "response.http.headers.config": rules,
        "access.control.allow.origin": "https://console.example",
        "access.control.allow.methods": "GET,PUT",
    }
    with running(broker, **keys) as worker:
        usual, admin = (f"http://127.0.0.1:{port}" for port in worker.ports)
        status, headers, _ = ask(f"{usual}/connectors", headers={"Origin": "https://console.example"})
        assert (status, headers["X-Frame-Options"], headers["Cache-Control"]) == (
            200,
            "DENY",
            "no-cache, no-store",
        )
        assert headers["Access-Control-Allow-Origin"] == "https://console.example"
        assert (
            ask(usual, headers={"Origin": "https://other.example"})[1]["Access-Control-Allow-Origin"] is None
        )
        asked = {"Origin": "https://console.example", "Access-Control-Request-Method": "PUT"}
        assert ask(f"{usual}/connectors", method="OPTIONS", headers=asked)[0] == 200
        assert ask(f"{usual}/admin/loggers")[0] == 404
        assert ask(f"{admin}/admin/loggers")[0] == 200
        assert ask(f"{admin}/connectors")[0] == 404
    with running(broker, admin_listeners="") as worker:
        assert len(worker.ports) == 1
        assert ask(f"http://127.0.0.1:{worker.port}/admin/loggers")[0] == 404


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"listeners": "https://127.0.0.1:0"}, "needs listeners.https.ssl.keystore.location"),
        ({"rest.extension.classes": "com.example.MyExtension"}, "is written in Java and cannot run here"),
        ({"rest.extension.classes": EXTENSION}, "needs a file of logins"),
        ({"ottla.rest.logins.file": "/nowhere"}, "cannot be read: No such file or directory"),
        ({"response.http.headers.config": "put X: y"}, "a rule looks like"),
        ({"response.http.headers.config": "setDate Expires: soon"}, "is no time in ms"),
        ({"admin.listeners": "nothing"}, "configuration admin.listeners"),
    ],
)
def test_a_guard_that_cannot_work_stops_the_start_with_a_sentence(broker, keys, sentence):
    with pytest.raises((ConfigInvalid, ConnectError), match=sentence), running(broker, **keys):
        pass


def test_an_empty_file_of_logins_lets_nobody_in(broker, tmp_path):
    (tmp_path / "logins").write_text("# nobody\n")
    with pytest.raises(ConfigInvalid, match="has no line like user=password"):
        with running(broker, ottla_rest_logins_file=str(tmp_path / "logins")):
            pass
