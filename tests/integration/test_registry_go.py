"""franz-go's `sr` package on a registry of ours: a program's story in Go, and records that both can read."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.schemas import Registry
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

PACKAGE = "github.com/twmb/franz-go/pkg/sr"
SOURCE = Path(__file__).parent / "go_registry"


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The program, built once; Go itself keeps its modules and objects."""
    if shutil.which("go") is None:
        pytest.skip(f"Go is not installed, which {PACKAGE} needs: install Debian's golang")
    built = tmp_path_factory.mktemp("go") / "story"
    words = ["go", "build", "-o", str(built), "."]
    try:
        done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go did not build a program with {PACKAGE} within 300 s")
    if done.returncode and any(
        word in done.stderr for word in ("dial tcp", "requires go", "invalid go version")
    ):
        pytest.skip(f"Go cannot fetch or build {PACKAGE}: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    return built


def test_a_program_with_franz_gos_client(program, shared_ottla_broker):
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
