# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SVG parts that all pictures of the collection use. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from xml.sax.saxutils import escape


def frame(width: int, height: int, title: str) -> list[str]:
    """Return the first lines of a picture; its last line is ``</svg>``."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]


def mark(left: float, top: float, bottom: float, color: str, dashes: str) -> str:
    """Return a vertical line."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="{color}" stroke-width="1.5"{dashed}/>'


def text(left: float, base: float, words: str, *, size: int = 13, anchor: str = "start", color: str = "") -> str:
    """Return text that starts at a position, ends there or is centered on it (``anchor``)."""
    fill = f' fill="{color}"' if color else ""
    return f'<text x="{left:.1f}" y="{base:.1f}" font-size="{size}" text-anchor="{anchor}"{fill}>{escape(words)}</text>'


def on(color: str) -> str:
    """Return the text color that is readable on a background color: black or white."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "#ffffff"
