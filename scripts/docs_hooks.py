"""Hooks of the documentation build (`mkdocs.yml`): generated parts of pages, and marks that only tests read."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from reference_pages import PARTS

_MARK = re.compile(r"^<!-- generated: (?P<name>[a-z-]+) -->$", re.MULTILINE)
_TEST_MARK = re.compile(r"^<!-- (?:page|run): [^>]*-->\n+", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the generated parts where a page asks for them; an unknown name ends the build."""
    # A page's title is its first heading only if nothing stands before it.
    markdown = _TEST_MARK.sub("", markdown)
    return _MARK.sub(lambda mark: PARTS[mark["name"]](), markdown)
