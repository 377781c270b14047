"""Shares in percent to colours on which a number can be read, for light and for dark pages."""

from __future__ import annotations

_LIGHT = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")
"""Brewer's Blues, the sequential colours of the figures."""
_DARK = ("#1a212b", "#1d3148", "#20466d", "#285f94", "#3a7cb8", "#5c9bd3", "#86b9e5", "#b1d4f3", "#dcecfb")
_INKS = ("#000000", "#ffffff")


def shade(share: float | None) -> str:
    """The style of a cell: its colour and its ink, light and dark; nothing for no share."""
    if share is None:
        return ""
    light, dark = _between(_LIGHT, share / 100), _between(_DARK, share / 100)
    return f"--light: {light}; --light-ink: {_ink(light)}; --dark: {dark}; --dark-ink: {_ink(dark)}"


def contrast(colour: str, other: str) -> float:
    """The contrast ratio of two colours by WCAG 2, from 1 to 21."""
    lower, upper = sorted((_luminance(colour), _luminance(other)))
    return (upper + 0.05) / (lower + 0.05)


def _between(colours: tuple[str, ...], place: float) -> str:
    """The colour at a place from 0 to 1 of a ramp."""
    scaled = min(max(place, 0.0), 1.0) * (len(colours) - 1)
    i = min(int(scaled), len(colours) - 2)
    mixed = (
        round(a + (b - a) * (scaled - i)) for a, b in zip(_channels(colours[i]), _channels(colours[i + 1]), strict=True)
    )
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _ink(colour: str) -> str:
    return max(_INKS, key=lambda ink: contrast(ink, colour))


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def _luminance(colour: str) -> float:
    parts = (channel / 255 for channel in _channels(colour))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
