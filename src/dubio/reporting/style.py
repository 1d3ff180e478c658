"""How figures look: one colour and marker a method family, everywhere the same; ensembles apart from single fits.

Hues are Okabe and Ito's, safe for the colour-blind, used in pairs: the light one for a deterministic pass, the strong
one for its Monte Carlo twin. A family also has its marker, so that nothing hangs on colour alone. Single fits are drawn
thin, dashed and hollow; ensembles thick, solid and filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dubio.reporting.manifest_view import MethodView, tta_pairs

INK = "#1f2430"
MUTED = "#6b7280"
RULE = "#d5d9e0"
CONTROL = "#8a8f99"
INSIDE = "#0072b2"
OUTSIDE = "#d55e00"
NOISE = "#c9ced6"
"""What is left when nothing disagrees: uncertainty within every sample."""
MODEL = "#0065a9"
"""What samples or members disagree on."""
PAPER = "#fefefe"
"""The inside of hollow markers; just off white, so that the page can tell it from other whites."""

FAMILIES: dict[str, tuple[str, str]] = {
    "deterministic": ("#4b5563", "o"),
    "regularised": ("#44aaee", "s"),
    "mc-dropout": ("#0065a9", "D"),
    "concrete-dropout": ("#e69f00", "^"),
    "mc-concrete-dropout": ("#c94f00", "v"),
    "heteroscedastic": ("#4fbf9b", "P"),
    "mc-heteroscedastic": ("#00795a", "X"),
    "heteroscedastic-concrete-dropout": ("#d98cb3", "<"),
    "mc-heteroscedastic-concrete-dropout": ("#93357a", ">"),
}
"""Colour and marker of the families dubio knows by name."""

ENSEMBLING: dict[str, tuple[str, str]] = {
    "snapshot-ensemble": ("#a83232", "d"),
    "csgld": ("#5b4bb3", "p"),
    "csghmc": ("#b3559f", ">"),
    "fge": ("#c07a00", "^"),
    "swa": ("#4fbf9b", "P"),
    "swag": ("#6d8f1f", "H"),
    "mean-field-vi": ("#2f7f86", "v"),
    "laplace": ("#8c564b", "*"),
    "laplace-last": ("#44aaee", "X"),
}
"""Those of the ensembling study: apart from each other, from one network and from MC dropout, not from all above."""

SPARE: tuple[tuple[str, str], ...] = (
    ("#7a6a00", "h"),
    ("#5b4bb3", "p"),
    ("#a83232", "d"),
    ("#2f7f86", "8"),
    ("#8c564b", "*"),
    ("#6d8f1f", "H"),
)
"""For families of the user's own, in the order they appear."""

DASHED: tuple[float, tuple[float, float]] = (0.0, (3.2, 1.6))
DOTTED: tuple[float, tuple[float, float]] = (0.0, (1.0, 1.3))

RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "legend.fontsize": 7.8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.hashsalt": "dubio",
    "text.parse_math": False,
}
"""Matplotlib settings for every figure (its own type of names is not exported)."""


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


@dataclass(frozen=True)
class Style:
    """How a method is drawn; ``augmented`` are those that predict random views and have a twin that does not."""

    title: str
    colour: str
    marker: str
    ensemble: bool
    augmented: bool = False

    @property
    def outline(self) -> str:
        """The marker as an SVG path."""
        return OUTLINES[self.marker]

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments for a line."""
        return {
            "color": self.colour,
            "linestyle": DOTTED if self.augmented else "solid" if self.ensemble else DASHED,
            "linewidth": 1.9 if self.ensemble else 1.2,
            "label": self.title,
            **self.point,
        }

    @property
    def point(self) -> dict[str, Any]:
        """Keyword arguments for a marker."""
        return {
            "marker": self.marker,
            "markersize": 5.0 if self.ensemble else 4.6,
            "markeredgecolor": self.colour,
            "markerfacecolor": self.colour if self.ensemble else PAPER,
            "markeredgewidth": 1.1,
        }


def styles_of(methods: Sequence[MethodView]) -> dict[str, Style]:
    """The look of each method by name; an ensemble shares colour and marker with its family, a twin with its base."""
    spare: dict[str, tuple[str, str]] = {}
    found: dict[str, Style] = {}
    base, families = tta_pairs(methods), {method.name: method.family for method in methods}
    known = FAMILIES | ENSEMBLING
    taken = {known[family][0] for family in families.values() if family in known}
    free = [each for each in SPARE if each[0] not in taken] or SPARE
    for method in methods:
        family = families[base.get(method.name, method.name)]
        if family in known:
            colour, marker = known[family]
        else:
            colour, marker = spare.setdefault(family, free[len(spare) % len(free)])
        found[method.name] = Style(method.title, colour, marker, method.ensemble, method.name in base)
    return found
