"""Forms as browsers send them: names and texts, bounded. Files are not taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from ottla.console.web import BadInput

if TYPE_CHECKING:
    from starlette.requests import Request

_TYPE: Final = "application/x-www-form-urlencoded"
MAX_FIELDS: Final = 2_000


async def read_form(request: Request, max_fields: int = MAX_FIELDS) -> dict[str, str]:
    """The fields of a form; of a name that comes twice, the last. The guard has bounded the body's length."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != _TYPE:
        raise BadInput("The request is not a form.")
    body = await request.body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=max_fields, errors="strict"
        )
    except ValueError:
        raise BadInput("The form cannot be read.") from None
    return dict(pairs)
