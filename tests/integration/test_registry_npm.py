"""npm's `@confluentinc/schemaregistry` on a registry of ours: a program's story, and records that both can read."""

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

PACKAGE = "@confluentinc/schemaregistry@1.10.1"
STORY = Path(__file__).parent / "npm" / "story.js"


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder with the package, installed once into the user's cache."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: install Debian's nodejs and npm")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "ottla" / "npm" / PACKAGE.rpartition("/")[2].replace("@", "-")
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
            PACKAGE,
        ]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=240)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install {PACKAGE} within 240 s")
        if done.returncode:
            pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.strip()[-200:]}")
        (folder / "installed").touch()
    return folder / "node_modules"


def test_a_program_with_npms_client(modules, shared_ottla_broker):
    bootstrap = shared_ottla_broker.bootstrap
    with RegistryProcess(bootstrap, "--topic", "_npm", "--group", "npm") as process:
        registry = Registry(process.url)
        fields = [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}]
        ours = registry.avro("ours-value", {"type": "record", "name": "Order", "fields": fields})
        written = base64.b64encode(ours.serialize("ours", [], {"id": 8, "customer": "bob"})).decode()
        done = subprocess.run(
            ["node", str(STORY), process.url, written],
            env={**os.environ, "NODE_PATH": str(modules)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
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
