"""What a connector's runner does after a failure."""

import threading
from typing import ClassVar

import pytest

from ottla.connect.config.secrets import Redactor
from ottla.connect.failures import Occupied
from ottla.connect.run.progress import Progress
from ottla.connect.run.runner import Backoff, ConnectorRunner, Prepared
from ottla.pipeline.failures import SinkFenced


class Script:
    """Runs that fail as the list says; the last one runs until the runner stops."""

    def __init__(self, *failures):
        self._failures = list(failures)
        self.states = []
        self.settled = threading.Event()

    def prepare(self, stopping):
        return Prepared(self, Redactor(), Progress())

    def start(self):
        if self._failures:
            raise self._failures.pop(0)

    def cycle(self):
        return False

    def wait(self):
        threading.Event().wait(0.001)

    def stop(self):
        pass

    def report(self, what, state, trace):
        if what == "tasks":
            self.states.append(state)
            if state in ("RUNNING", "FAILED"):
                self.settled.set()

    def run(self, *, contested):
        runner = ConnectorRunner(
            "c", self.prepare, self.report, "STARTED", Backoff(0.001, 0.002), contested=contested
        )
        runner.start()
        assert self.settled.wait(30)
        assert runner.stop(30)
        return self.states


def test_a_fenced_run_of_a_cluster_goes_on_if_it_is_still_the_owner():
    """A zombie that wakes late fences the rightful run once more: that one must not stand still for ever."""
    assert Script(SinkFenced("taken over")).run(contested=True) == ["RESTARTING", "RUNNING"]


def test_a_fenced_run_of_a_worker_alone_fails():
    assert Script(SinkFenced("taken over")).run(contested=False) == ["FAILED"]


@pytest.mark.parametrize("failure", [Occupied("in use"), SinkFenced("taken over")])
def test_what_another_run_holds_for_a_moment_is_tried_again_soon(failure):
    class Pauses(Backoff):
        asked: ClassVar[list[int]] = []

        def pause_s(self, failures):
            self.asked.append(failures)
            return 0.001

    Pauses.asked = []
    script = Script(failure, failure, failure)
    runner = ConnectorRunner("c", script.prepare, script.report, "STARTED", Pauses(), contested=True)
    runner.start()
    assert script.settled.wait(30)
    assert runner.stop(30) and Pauses.asked == [1, 1, 1]
