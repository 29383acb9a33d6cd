"""Who may read what a node writes: only its owner. SCRAM keys and dynamic passwords are in the metadata log."""

from __future__ import annotations

import os


def keep_files_private() -> None:
    """Make new directories with mode 0700 and new files with 0600, for the rest of this process."""
    os.umask(0o077)
