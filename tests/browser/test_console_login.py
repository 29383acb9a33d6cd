"""Sign in with a user of the cluster: its brokers check the password, and its ACLs decide."""

from __future__ import annotations

import re
import subprocess
import sys

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.cluster import running_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with running_cluster(1, data=tmp_path_factory.mktemp("secured"), secure=True) as cluster:
        admin = cluster.librdkafka_settings_of("admin")
        names = ["team1.orders", "team2.orders"]
        client = AdminClient(admin)
        for each in client.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            each.result()
        producer = Producer(admin)
        for name in names:
            producer.produce(name, f"a record of {name}")
        producer.flush()
        cluster.add_tenant("team1", "team1.")
        yield cluster


@pytest.fixture(scope="module")
def console(secured, tmp_path_factory, start_console):
    """It knows how to reach the cluster, and no user."""
    lines = secured.properties_of("admin").read_text().splitlines()
    config = tmp_path_factory.mktemp("config") / "console.properties"
    config.write_text("\n".join(line for line in lines if not line.startswith("sasl.jaas.config")) + "\n")
    return start_console("--command-config", str(config), "--login", "kafka")


def sign_in(console, name, password):
    client = httpx.Client(base_url=console.root, headers={"origin": console.root}, timeout=60)
    token = re.search(r'name="token" value="([0-9a-f]+)"', client.get("/signin").text)[1]
    answer = client.post("/signin", data={"name": name, "password": password, "token": token, "to": "/"})
    if answer.status_code == 303:
        # httpx sends no Secure cookie over plain HTTP; browsers do to this machine.
        client.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
    return client, answer


def password_of(secured, name):
    return secured.librdkafka_settings_of(name)["sasl.password"]


def test_nobody_gets_in_without_a_password_of_the_cluster(console):
    assert httpx.get(f"{console.url}/topics").status_code == 303
    assert httpx.get(f"{console.root}/metrics").status_code == 401
    assert httpx.get(f"{console.root}/health/ready").json()["ready"]
    client, answer = sign_in(console, "team1", "wrong")
    assert answer.status_code == 403
    assert "wrong" in answer.text
    assert client.get("/c/local/topics").status_code == 303
    client.close()


def test_what_a_user_sees_and_may_do_is_what_the_acls_say(console, secured):
    team, answer = sign_in(console, "team1", password_of(secured, "team1"))
    assert answer.status_code == 303
    topics = team.get("/c/local/topics").text
    assert "team1.orders" in topics
    assert "team2.orders" not in topics
    assert "a record of team1.orders" in team.get("/c/local/t/team1.orders").text
    assert team.get("/c/local/t/team2.orders").status_code == 404
    token = re.search(r'name="token" value="([0-9a-f]+)"', topics)[1]
    form = {"name": "team2.more", "partitions": "1", "replicas": "1", "token": token}
    assert team.post("/c/local/plan/topic.create", data=form).status_code == 403
    admin, _ = sign_in(console, "admin", password_of(secured, "admin"))
    assert "team2.orders" in admin.get("/c/local/topics").text
    # A session that has ended takes its clients with it.
    assert team.post("/signout", data={"token": token}).status_code == 303
    assert team.get("/c/local/topics").status_code == 303
    assert "team2.orders" in admin.get("/c/local/topics").text
    for client in (team, admin):
        client.close()


def test_a_cluster_without_users_is_refused():
    words = [sys.executable, "-m", "ottla", "console", "--listen", "127.0.0.1:0", "--login", "kafka"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--login kafka needs SASL with a name and a password" in done.stderr
