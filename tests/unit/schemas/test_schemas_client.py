"""The client's settings: where its registry is, and that nobody sees its password."""

from __future__ import annotations

import pickle

import pytest

from ottla.cli.profiles import shown
from ottla.connect.config.secrets import masked
from ottla.schemas import Registry, RegistryUnavailable, SchemaError
from ottla.testing.ports import free_ports

LOGIN = {"schema.registry.url": "http://localhost:8081", "basic.auth.user.info": "ann:pass:word"}


def test_a_login_in_the_address_is_taken_out_of_it():
    registry = Registry("https://ann:s%40cret@one:8081,http://two/path")
    assert registry.urls == "https://one:8081,http://two/path"
    assert (registry.user, registry.password) == ("ann", "s@cret")
    assert registry._headers()["Authorization"] == "Basic YW5uOnNAY3JldA=="
    assert "cret" not in repr(registry)


def test_properties_name_a_registry_by_confluents_keys():
    found = Registry.of(LOGIN)
    assert (found.urls, found.user, found.password) == ("http://localhost:8081", "ann", "pass:word")
    assert Registry.of({"bootstrap.servers": "a:1"}) is None


@pytest.mark.parametrize("url", ["localhost:8081", "http://ann:topsecret@", "http://ann:topsecret@host:port"])
def test_a_wrong_address_is_refused_without_its_password(url):
    with pytest.raises(ValueError, match="is not the address of a registry") as failed:
        Registry(url)
    assert "topsecret" not in str(failed.value)


def test_no_error_shows_the_password():
    (port,) = free_ports(1)
    registry = Registry(f"http://ann:topsecret@127.0.0.1:{port}")
    with pytest.raises(RegistryUnavailable) as failed:
        registry.by_id(7)
    assert "topsecret" not in str(failed.value) and failed.value.schema_id == 7
    with pytest.raises(SchemaError) as failed:
        registry.register("s", "{}")
    assert "topsecret" not in str(failed.value)


def test_a_password_does_not_travel_but_its_place_does(monkeypatch, tmp_path):
    with pytest.raises(SchemaError, match="password_env") as failed:
        pickle.dumps(Registry("http://ann:topsecret@host:1"))
    assert "topsecret" not in str(failed.value)
    with pytest.raises(SchemaError, match="password_env"):
        pickle.dumps(Registry("http://host:1", "ann", "topsecret").avro("s"))
    monkeypatch.setenv("REGISTRY_PASSWORD", "topsecret")
    (tmp_path / "password").write_text("topsecret\n")
    for place in ({"password_env": "REGISTRY_PASSWORD"}, {"password_file": str(tmp_path / "password")}):
        registry = Registry("http://host:1", "ann", **place)
        sent = pickle.dumps(registry.avro("s"))
        assert b"topsecret" not in sent and "topsecret" not in repr(registry)
        arrived = pickle.loads(sent).registry
        assert arrived == registry
        assert arrived._headers()["Authorization"] == "Basic YW5uOnRvcHNlY3JldA=="


def test_a_missing_place_of_a_password_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("NO_SUCH_NAME", raising=False)
    with pytest.raises(SchemaError, match="the environment has no NO_SUCH_NAME"):
        Registry("http://localhost:1", "ann", password_env="NO_SUCH_NAME").by_id(1)
    with pytest.raises(SchemaError, match="No such file"):
        Registry("http://localhost:1", "ann", password_file=str(tmp_path / "none")).by_id(1)


def test_profiles_and_connectors_hide_it():
    with_login = {**LOGIN, "schema.registry.url": "http://ann:topsecret@host:1"}
    for hidden in (shown(with_login), masked(with_login)):
        assert "topsecret" not in str(hidden) and "pass:word" not in str(hidden)
        assert hidden["schema.registry.url"].endswith("@host:1")
