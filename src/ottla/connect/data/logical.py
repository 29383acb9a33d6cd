"""Connect's logical types: decimals, dates and times, and the numbers and bytes that stand for them."""

from __future__ import annotations

import datetime
import decimal
from typing import Final

from ottla.connect.data.schema import SCALE, Schema
from ottla.connect.failures import DataError

MS_PER_DAY: Final = 86_400_000
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DATE: Final = datetime.date(1970, 1, 1)
_MS: Final = datetime.timedelta(milliseconds=1)
_CONTEXT: Final = decimal.Context(prec=100_000, Emax=999_999, Emin=-999_999)


def decimal_to_bytes(schema: Schema, value: decimal.Decimal) -> bytes:
    """The unscaled value, as Java's BigInteger writes it."""
    scale = decimal_scale(schema)
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise DataError(f"{value} is not a number that a Decimal can hold")
    if -exponent != scale:
        raise DataError("Decimal value has mismatching scale for given Decimal schema")
    return signed_bytes(int(value.scaleb(scale, context=_CONTEXT)))


def decimal_from_bytes(schema: Schema, data: bytes) -> decimal.Decimal:
    """The decimal of an unscaled value."""
    return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(
        -decimal_scale(schema), context=_CONTEXT
    )


def decimal_scale(schema: Schema) -> int:
    """The digits after the point."""
    text = (schema.parameters or {}).get(SCALE)
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError:
        raise DataError("Invalid scale parameter found in Decimal schema: ") from None


def signed_bytes(number: int) -> bytes:
    """The shortest two's complement form, highest byte first."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def days_of(value: datetime.date) -> int:
    """Days since 1970."""
    return (value - _EPOCH_DATE).days


def date_of(days: int) -> datetime.date:
    """The date of a number of days."""
    try:
        return _EPOCH_DATE + datetime.timedelta(days=days)
    except OverflowError:
        raise DataError(f"{days} days since 1970 is not in the years 1 to 9999") from None


def time_ms_of(value: datetime.time) -> int:
    """Milliseconds since midnight."""
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def time_of(ms: int) -> datetime.time:
    """The time of a number of milliseconds."""
    if not 0 <= ms < MS_PER_DAY:
        raise DataError(f"Time values must use number of milliseconds between 0 and {MS_PER_DAY}, not {ms}")
    seconds, rest = divmod(ms, 1000)
    return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * 1000)


def timestamp_ms_of(value: datetime.datetime) -> int:
    """Milliseconds since 1970; a time without a zone counts as UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    return (value - EPOCH) // _MS


def timestamp_of(ms: int) -> datetime.datetime:
    """The time of a number of milliseconds."""
    try:
        return EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        raise DataError(f"{ms} milliseconds since 1970 is not in the years 1 to 9999") from None
