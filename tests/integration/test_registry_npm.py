"""npm's registry clients on a registry of ours: a program's story with each, and records that both can read."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.schemas import Registry
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

CONFLUENTS = "@confluentinc/schemaregistry@1.10.1"
KAFKAJS = "@kafkajs/confluent-schema-registry@4.1.0"
STORIES = Path(__file__).parent / "npm"
FIELDS = [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}]


def installed(package: str) -> Path:
    """The folder with a package, installed once into the user's cache."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: install Debian's nodejs and npm")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "ottla" / "npm" / package.rpartition("/")[2].replace("@", "-")
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = [
            "npm",
            "install",
            "--prefix",
            str(folder),
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            package,
        ]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=240)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install {package} within 240 s")
        if done.returncode:
            pytest.skip(f"npm cannot install {package}: {done.stderr.strip()[-200:]}")
        (folder / "installed").touch()
    return folder / "node_modules"


def output_of(package: str, story: str, process: RegistryProcess, registry: Registry) -> dict[str, Any]:
    """What a story prints. It gets a record that our serializer wrote."""
    modules = installed(package)
    ours = registry.avro("ours-value", {"type": "record", "name": "Order", "fields": FIELDS})
    written = base64.b64encode(ours.serialize("ours", [], {"id": 8, "customer": "bob"})).decode()
    done = subprocess.run(
        ["node", str(STORIES / story), process.url, written],
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_program_with_npms_client(shared_ottla_broker):
    bootstrap = shared_ottla_broker.bootstrap
    with RegistryProcess(bootstrap, "--topic", "_npm", "--group", "npm") as process:
        registry = Registry(process.url)
        found = output_of(CONFLUENTS, "story.js", process, registry)
        avro, cart = base64.b64decode(found.pop("avro")), base64.b64decode(found.pop("json"))
        assert registry.avro().deserialize("npm", [], avro) == {"id": 7, "customer": "ann", "note": "x"}
        assert registry.json().deserialize("npm-json", [], cart) == {"n": 3}
        registry.close()
    assert json.loads(found.pop("text"))["name"] == "Order"
    first, second = found.pop("first"), found.pop("second")
    assert second > first and found.pop("latest") == [second, 2]
    assert found == {
        "compatible": False,
        "refused": [409, 409],
        "versions": [1, 2],
        "level": "FULL",
        "levelRead": "FULL",
        "theirs": {"id": 8, "customer": "bob"},
        "jsonRead": {"n": 3},
        "deleted": [1],
        "gone": [404, 40401],
    }


def test_a_program_with_kafkajss_client(shared_ottla_broker):
    bootstrap = shared_ottla_broker.bootstrap
    with RegistryProcess(bootstrap, "--topic", "_kafkajs", "--group", "kafkajs") as process:
        registry = Registry(process.url)
        found = output_of(KAFKAJS, "kafkajs.js", process, registry)
        avro, cart = base64.b64decode(found.pop("avro")), base64.b64decode(found.pop("json"))
        order = {"id": 7, "customer": "ann", "note": "x"}
        assert registry.avro().deserialize("kafkajs", [], avro) == order
        assert registry.json().deserialize("kafkajs-json", [], cart) == {"n": 3}
        registry.close()
    first, second = found.pop("first"), found.pop("second")
    assert second > first and found.pop("versions") == [first, second]
    assert found == {
        "again": first,
        "refused": ["ResponseError", 409],
        "level": "ConfluentSchemaRegistryCompatibilityError",
        "latest": second,
        "found": first,
        "theirs": {"id": 8, "customer": "bob"},
        "jsonRead": {"n": 3},
        "unknown": 404,
    }
