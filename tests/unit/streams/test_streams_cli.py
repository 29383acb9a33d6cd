"""`ottla streams`: the commands that need no Spark."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main

APP = """
from ottla.streams import StreamsBuilder
b = StreamsBuilder()
b.stream("a").map_values(str.upper).to("b")
"""


def ottla(*words: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["streams", *words], env=environment)
    return done.exit_code, done.output


def test_describe_shows_the_topology_in_four_ways(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [a])" in ottla("describe", str(app))[1]
    assert ottla("describe", str(app), "--format", "mermaid")[1].startswith("flowchart TB")
    assert ottla("describe", str(app), "--format", "svg")[1].startswith("<svg ")
    assert ottla("describe", str(app), "--format", "stages")[1].startswith("Stage 0: no state")


def test_a_file_without_an_application_is_refused_with_a_sentence(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("x = 1")
    code, output = ottla("describe", str(app))
    assert code == 1
    assert "defines 0 StreamsBuilders; an application has one" in output
    assert "there is no file" in ottla("describe", str(tmp_path / "no.py"))[1]


@pytest.mark.parametrize("command", ["run", "reset"])
def test_the_environment_names_the_cluster_unless_a_flag_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("ottla.streams.settings.BROKER_TIMEOUT_MS", 100)
    (app := tmp_path / "app.py").write_text(APP)
    words = [command, *([str(app)] if command == "run" else []), "--application-id", "a"]
    words += ["--state-dir", str(tmp_path)]
    with socket.socket() as one, socket.socket() as two:
        for unused in (one, two):
            unused.bind(("127.0.0.1", 0))
        first, second = (f"127.0.0.1:{unused.getsockname()[1]}" for unused in (one, two))
        code, output = ottla(*words, OTTLA_BOOTSTRAP=first)
        assert (code, f"no broker answers at {first} " in output) == (1, True), output
        code, output = ottla(*words, "--bootstrap-server", second, OTTLA_BOOTSTRAP=first)
        assert (code, f"no broker answers at {second} " in output) == (1, True), output


def test_status_and_stop_speak_to_what_an_application_left_behind(tmp_path: Path) -> None:
    directory = tmp_path / "counting"
    directory.mkdir()
    output = {
        "application_id": "counting",
        "pid": 2**22 + 1,
        "running": True,
        "batch": 7,
        "rows_per_second": 1234.5,
    }
    (directory / "status.json").write_text(json.dumps(output))
    code, table = ottla("status", "--state-dir", str(tmp_path))
    assert code == 0
    assert table.splitlines()[1].split() == ["counting", "stopped", "7", "1,234", "-", "-", "-"]
    shown = json.loads(ottla("status", "--state-dir", str(tmp_path), "--json")[1])
    assert shown[0]["running"] is False

    assert ottla("stop", "--application-id", "counting", "--state-dir", str(tmp_path))[0] == 0
    assert (directory / "stop").exists()
    code, sentence = ottla("stop", "--application-id", "other", "--state-dir", str(tmp_path))
    assert code == 1
    assert "there is no application other" in sentence
