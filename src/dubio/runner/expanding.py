"""What is said once for many tasks of a benchmark, written out for each: before the benchmark is read.

::

    [network.textcnn-v2]            # under every task with this network
    methods = ["sngp"]

    [[task]]
    name = "clinc"
    network = ["textcnn", "textcnn-v2"]     # a task with several networks is as many entries
"""

from __future__ import annotations

from typing import Any

from dubio.core.errors import UnknownName, UserError
from dubio.runner.tables import Table, check

LAID_UNDER = ("network_arguments", "encoding", "training", "method", "method_network")
NETWORK_KEYS: dict[str, type] = {"methods": list, **dict.fromkeys(LAID_UNDER, dict)}


def expanded(table: Table) -> dict[str, Any]:
    """The table with an entry for each task and network, and nothing said of networks in general.

    Raises:
        UserError: For what is no table, or a network that no task has.
    """
    entries: list[Any] = []
    for entry in table["task"]:
        several = isinstance(entry, dict) and isinstance(entry.get("network"), list)
        entries += [{**entry, "network": name} for name in entry["network"]] if several else [entry]
    defaults = table.get("network", {})
    known = {entry["network"] for entry in entries if isinstance(entry, dict) and "network" in entry}
    for name, said in defaults.items():
        check(f"[network.{name}]", said, NETWORK_KEYS)
        if name not in known:
            raise UnknownName(f"network in [network.{name}]", name, known)
    rest = {key: value for key, value in table.items() if key != "network"}
    return {**rest, "task": [_laid_over(entry, defaults) for entry in entries]}


def _laid_over(entry: Any, defaults: Table) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("network"), str):
        return entry  # refused, with its reason, where it is read
    below = defaults.get(entry["network"], {})
    new = {**below, **entry}
    for key in LAID_UNDER:
        if key in below and key in entry:
            if not isinstance(entry[key], dict):
                raise UserError(f"[[task]]: {key} must be a table; given {entry[key]!r}.")
            new[key] = {**below[key], **entry[key]}
    return new
