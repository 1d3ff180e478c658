"""What finished fits say of themselves that one should know: a value that was looked for ran into its bound."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from dubio.core.errors import CorruptFile
from dubio.store import Store

LAPLACE = "laplace"
"""Where a fit's record has what a Laplace approximation chose."""

LOOKED_FOR = {
    "scale": "noise scale",
    "scale_with_views": "noise scale for predictions with views",
    "decay": "prior's weight decay",
}
"""What is looked for on validation, as the record calls it and as it is spoken of."""

ENDS = {"low": "least", "high": "greatest"}


def bound_cautions(store: Store, runs: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """One sentence for each task, network, value and end that some fit's search ran into.

    Args:
        store: Holds the fits.
        runs: As a manifest lists them.
    """
    fits: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        for fit in run["fits"]:
            methods = fits.setdefault((run["task"], run["network"]), {}).setdefault(fit, [])
            methods += [run["method"]] if run["method"] not in methods else []
    return tuple(words for place, used in fits.items() for words in _of_place(place, _chosen(store, used), used))


def _chosen(store: Store, fits: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Of each Laplace fit, what it chose."""
    found = {}
    for fit in fits:
        # a fit whose predictions are there may be gone or damaged, which is said elsewhere
        with contextlib.suppress(CorruptFile):
            record = store.record(fit) if store.has_fit(fit) else {}
            if LAPLACE in record:
                found[fit] = record[LAPLACE]
    return found


def _of_place(
    place: tuple[str, str], chosen: Mapping[str, Mapping[str, Any]], methods: Mapping[str, Iterable[str]]
) -> Iterable[str]:
    for name, spoken in LOOKED_FOR.items():
        for end, word in ENDS.items():
            hit = [fit for fit, values in chosen.items() if values.get(f"{name}_at_bound") == end]
            if hit:
                value = chosen[hit[0]][name]
                named = ", ".join(dict.fromkeys(method for fit in hit for method in methods[fit]))
                yield (
                    f"{'/'.join(place)}: of {len(hit)} of {len(chosen)} Laplace fits ({named}) the {spoken} that does "
                    f"best on validation is the {word} that was tried, {value:.2g}; a better one may lie beyond it."
                )
