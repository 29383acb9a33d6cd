"""Go's registry clients on a registry of ours: a program's story with each, and records that both can read."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.schemas import Registry
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

FRANZ = "github.com/twmb/franz-go/pkg/sr"
CONFLUENTS = "github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
HERE = Path(__file__).parent


def built(package: str, folder: str, target: Path) -> Path:
    """A program, built without a C compiler; Go itself keeps its modules and objects."""
    if shutil.which("go") is None:
        pytest.skip(f"Go is not installed, which {package} needs: install Debian's golang")
    words = ["go", "build", "-o", str(target / "story"), "."]
    env = {**os.environ, "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(words, cwd=HERE / folder, env=env, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go did not build a program with {package} within 300 s")
    if done.returncode and any(
        word in done.stderr for word in ("dial tcp", "requires go", "invalid go version")
    ):
        pytest.skip(f"Go cannot fetch or build {package}: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    return target / "story"


def test_a_program_with_franz_gos_client(tmp_path, shared_ottla_broker):
    program = built(FRANZ, "go_registry", tmp_path)
    bootstrap = shared_ottla_broker.bootstrap
    with RegistryProcess(bootstrap, "--topic", "_go", "--group", "go") as process:
        registry = Registry(process.url)
        ours = registry.json("go-json-value", {"type": "object", "properties": {"n": {"type": "integer"}}})
        record = ours.serialize("go-json", [], {"n": 5})
        assert ours.deserialize("go-json", [], record) == {"n": 5}
        written = base64.b64encode(record).decode()
        done = subprocess.run([program, process.url, written], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        # The serializer kept the schema, which the program has deleted meanwhile.
        assert ours.deserialize("go-json", [], base64.b64decode(found.pop("json"))) == {"n": 3}
        registry.close()
    assert json.loads(found.pop("text"))["name"] == "Order"
    assert "/fields/1" in found["reasons"][0] and "price" in found.pop("reasons")[0]
    assert found == {
        "compatible": False,
        "deleted": [1],
        "found": True,
        "gone": [404, 40401],
        "level": "FULL_TRANSITIVE",
        "newer": True,
        "numbers": [1, 2],
        "referenced": "home-value",
        "refused": [409, 409],
        "same": True,
        "theirs": 5,
        "types": 3,
        "unknown": [404, 40403],
        "users": ["go-value"],
        "versions": [1, 2],
    }


def test_a_program_with_confluents_client(tmp_path, shared_ottla_broker):
    program = built(CONFLUENTS, "go_confluent_registry", tmp_path)
    bootstrap = shared_ottla_broker.bootstrap
    with RegistryProcess(bootstrap, "--topic", "_confluentgo", "--group", "confluentgo") as process:
        done = subprocess.run([program, process.url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads(found.pop("text"))["name"] == "Order"
    assert found == {
        "compatible": False,
        "contract": [3, "encrypt"],
        "dek": 1,
        "deleted": [1, 2, 3],
        "first": "AAAA",
        "found": True,
        "gone": 40401,
        "kek": ["go-kek", "local-kms", "mine"],
        "kekTaken": 40971,
        "latest": True,
        "level": "FULL",
        "newer": True,
        "noDek": 40470,
        "refused": 409,
        "taken": 40971,
        "versions": [1, 2],
    }
