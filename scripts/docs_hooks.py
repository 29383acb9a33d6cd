"""Hooks of the documentation build (`mkdocs.yml`): generated parts of pages, and links out of `docs/`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from reference_pages import PARTS

_MARK = re.compile(r"^<!-- generated: (?P<name>[a-z-]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the generated parts where a page asks for them; an unknown name ends the build."""
    return _MARK.sub(lambda mark: PARTS[mark["name"]](), markdown)
