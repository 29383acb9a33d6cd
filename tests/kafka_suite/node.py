"""A node of the cluster that one of Kafka's tests runs on: format its directories, then serve until the test ends."""

from __future__ import annotations

import os
import signal
import sys
import threading

from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.main import main as ottla
from ottla.cli.settings import node_config


def _end_with_parent() -> None:
    """The parent holds the other end of standard input, so the end of the input is the end of the parent."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Arguments: the properties file, the cluster's id, the release, then features as `name=level`."""
    file, cluster_id, release, *features = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
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
