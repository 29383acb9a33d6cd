"""A node of the cluster that one of Kafka's tests runs on: format its directories, then serve until the test ends."""

from __future__ import annotations

import os
import signal
import sys

from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.main import main as ottla
from ottla.cli.settings import node_config
from ottla.parent_process import STOP_WITH_STDIN, in_thread_when_parent_ends


def main() -> None:
    """Arguments: the properties file, the cluster's id, the release, then features as `name=level`."""
    file, cluster_id, release, *features = sys.argv[1:]
    # The test holds the other end of standard input.
    os.environ.update(STOP_WITH_STDIN)
    in_thread_when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGKILL))
    format_node(
        FormatRequest(
            node_config(file), cluster_id, release=release, features=tuple(features), ignore_formatted=True
        ),
        lambda line: None,
    )
    sys.argv = ["ottla", "start", "--config", file]
    ottla()


if __name__ == "__main__":
    main()
