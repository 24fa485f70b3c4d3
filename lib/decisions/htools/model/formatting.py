"""Number formats of the placement tools."""

import math
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

_PLAIN_FROM: Final = 0.1
_PLAIN_BELOW: Final = 1e7


def fixed(value: float, digits: int) -> str:
    """Format with ``digits`` decimals; the shortest decimal is rounded half to even."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    step = Decimal(1).scaleb(-digits)
    return format(Decimal(repr(float(value))).quantize(step, ROUND_HALF_EVEN), "f")


def shown(value: float) -> str:
    """Format with the fewest digits that parse back, with a decimal or an exponent."""
    if not math.isfinite(value) or value == 0:
        return fixed(value, 1)
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return format(Decimal(repr(float(value))), "f")
    digits, exponent = format(Decimal(repr(float(value))).normalize(), "E").split("E")
    mantissa = digits if "." in digits else f"{digits}.0"
    return f"{mantissa}e{int(exponent)}"


def general(value: float) -> str:
    """Format with six decimals; very small and very large values with an exponent."""
    if value == 0 or not math.isfinite(value):
        return fixed(value, 6)
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return fixed(value, 6)
    power = math.floor(math.log10(abs(value)))
    mantissa = Decimal(repr(float(value))).scaleb(-power)
    text = format(mantissa.quantize(Decimal("0.000001"), ROUND_HALF_EVEN), "f")
    return f"{text}e{power}"


def quoted(text: str) -> str:
    """Put a text in single quotes unless it has only letters, digits and dots."""
    plain = all(char.isascii() and (char.isalnum() or char == ".") for char in text)
    return text if plain else f"'{text}'"
