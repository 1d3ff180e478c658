"""The style of figures: one colour and marker per family of methods, the same everywhere.

Hues are Okabe and Ito's, safe for the colour-blind, used in pairs: the light one for a single pass, the strong one for
the method that samples. A family also has its marker, so that nothing depends on colour alone. Single fits are drawn
thin, dashed and hollow; ensembles thick, solid and filled.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dubio.reporting.manifest_view import MethodView, tta_pairs

INK = "#1f2430"
MUTED = "#6b7280"
RULE = "#d5d9e0"
CONTROL = "#8a8f99"
INSIDE = "#0072b2"
OUTSIDE = "#d55e00"
NOISE = "#c9ced6"
"""Uncertainty within every sample."""
MODEL = "#0065a9"
"""Disagreement between samples or members."""
PAPER = "#fefefe"
"""The inside of hollow markers; just off white, so that the page can exchange it alone in its dark scheme."""

PALETTE: tuple[tuple[str, str], ...] = (
    ("#4b5563", "o"), ("#44aaee", "s"), ("#0065a9", "D"), ("#e69f00", "^"), ("#c94f00", "v"), ("#4fbf9b", "P"),
    ("#00795a", "X"), ("#d98cb3", "<"), ("#93357a", ">"), ("#a83232", "d"), ("#5b4bb3", "p"), ("#b3559f", ">"),
    ("#c07a00", "^"), ("#4fbf9b", "P"), ("#6d8f1f", "H"), ("#2f7f86", "v"), ("#8c564b", "*"), ("#9aa1ac", "8"),
    ("#a58a5b", "h"), ("#6f6552", "<"), ("#1f5fc4", "s"), ("#b5651d", "v"), ("#2e8540", "X"), ("#d1477a", "^"),
    ("#6a5acd", "P"), ("#e2725b", "d"), ("#8e7cc3", "p"), ("#7d1d3f", "H"),
)  # fmt: skip
"""Colours and markers by the number that a method is registered with.

The first nine differ from each other, and so do the next eleven from each other and from the first and the third, of
which the last three are those of baselines: quiet ones. The last eight, ensembles inside one network, Bayesian last
layers and adapters, differ in colour from all.
"""

SPARE: tuple[tuple[str, str], ...] = (
    ("#7a6a00", "h"), ("#5b4bb3", "p"), ("#a83232", "d"), ("#2f7f86", "8"), ("#8c564b", "*"), ("#6d8f1f", "H"),
)  # fmt: skip
"""For methods without a number, in the order they appear."""

OUTLINES: dict[str, str] = {
    "o": "M6 0A6 6 0 1 1 -6 0A6 6 0 1 1 6 0Z",
    "s": "M-5.5 -5.5H5.5V5.5H-5.5Z",
    "D": "M0 -7L7 0L0 7L-7 0Z",
    "^": "M0 -6.5L6.5 5.5H-6.5Z",
    "v": "M0 6.5L6.5 -5.5H-6.5Z",
    "<": "M-6.5 0L5.5 -6.5V6.5Z",
    ">": "M6.5 0L-5.5 -6.5V6.5Z",
    "P": "M-2.5 -7H2.5V-2.5H7V2.5H2.5V7H-2.5V2.5H-7V-2.5H-2.5Z",
    "X": "M-3.5 -7L0 -3.5L3.5 -7L7 -3.5L3.5 0L7 3.5L3.5 7L0 3.5L-3.5 7L-7 3.5L-3.5 0L-7 -3.5Z",
    "h": "M0 -7L6 -3.5V3.5L0 7L-6 3.5V-3.5Z",
    "p": "M0 -7L6.7 -2.2L4.1 5.7H-4.1L-6.7 -2.2Z",
    "d": "M0 -7L4.5 0L0 7L-4.5 0Z",
    "8": "M-2.7 -6.5H2.7L6.5 -2.7V2.7L2.7 6.5H-2.7L-6.5 2.7V-2.7Z",
    "*": "M0 -7.5L1.8 -2.4H7.1L2.8 .9L4.4 6.1L0 3L-4.4 6.1L-2.8 .9L-7.1 -2.4H-1.8Z",
    "H": "M-3.5 -6H3.5L7 0L3.5 6H-3.5L-7 0Z",
}
"""Each marker as an SVG path around the origin, for the page's own keys."""

SHAPES: dict[str, str] = {
    "o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down", "<": "triangle-left",
    ">": "triangle-right", "P": "cross", "X": "M-.5-1L0-.5 .5-1 1-.5 .5 0 1 .5 .5 1 0 .5-.5 1-1 .5-.5 0-1-.5Z",
    "h": "M0-1L.86-.5V.5L0 1-.86 .5V-.5Z", "p": "M0-1L.95-.31 .59 .81H-.59L-.95-.31Z", "d": "M0-1L.6 0 0 1-.6 0Z",
    "8": "M-.4-.95H.4L.95-.4V.4L.4 .95H-.4L-.95 .4V-.4Z",
    "*": "M0-1L.25-.32H.95L.39 .12 .59 .81 0 .4-.59 .81-.39 .12-.95-.32H-.25Z", "H": "M-.5-.86H.5L1 0 .5 .86H-.5L-1 0Z",
}  # fmt: skip
"""Each marker as Vega draws it: a name, or a path within a square from −1 to 1."""


@dataclass(frozen=True)
class Style:
    """The style of a method.

    ``augmented`` is test-time augmentation, where the run has the method without it too. The curve of a ``baseline``
    may lie outside a figure whose others it would squeeze together.
    """

    title: str
    colour: str
    marker: str
    ensemble: bool
    augmented: bool = False
    baseline: bool = False

    @property
    def outline(self) -> str:
        """The marker as an SVG path."""
        return OUTLINES[self.marker]

    @property
    def dash(self) -> list[float]:
        """The dashes of a line: ensembles are solid, single fits dashed, test-time augmentation dotted."""
        return [1.5, 2.5] if self.augmented else [1, 0] if self.ensemble else [5, 2.5]


def styles_of(methods: Sequence[MethodView]) -> dict[str, Style]:
    """Return the style of each method by name.

    An ensemble shares colour and marker with its family, a method with test-time augmentation with the one without. A
    variant, which has a name of its own, takes a spare colour, because the registered method may be in the same run.
    """
    base, families = tta_pairs(methods), {method.name: method.family for method in methods}
    numbers = {m.family: m.facts["colour"] for m in methods if m.name == m.registered and "colour" in m.facts}
    colours: dict[str, tuple[str, str]] = {f: PALETTE[number % len(PALETTE)] for f, number in numbers.items()}
    occupied = {colour for colour, _ in colours.values()}
    spare = [pair for pair in SPARE if pair[0] not in occupied]
    # where they run out, spare colours with other markers: two families never share both, up to ninety of them
    further = [pair for marker in OUTLINES for pair in ((colour, marker) for colour, _ in SPARE)]
    free = itertools.cycle(pair for pair in dict.fromkeys([*spare, *further]) if pair not in colours.values())
    styles = {}
    for method in methods:
        family = families[base.get(method.name, method.name)]
        if family not in colours:
            colours[family] = next(free)
        facts = method.ensemble, method.name in base, method.baseline
        styles[method.name] = Style(method.title, *colours[family], *facts)
    return styles
