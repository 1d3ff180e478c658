"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from dubio.core.errors import UserError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PluginOption = Annotated[
    list[Path] | None, typer.Option(help="A Python file that registers tasks, methods or metrics; may be repeated.")
]
StoreOption = Annotated[Path, typer.Option(help="Folder of the store.")]
STORE = Path("dubio-store")

ValuesOption = Annotated[
    Literal["probs", "log_probs", "logits"] | None,
    typer.Option(help="What the numbers are, if their names in the file do not tell."),
]
LabelsOption = Annotated[Path | None, typer.Option(help="A file of labels, if the file of predictions has none.")]
TargetOption = Annotated[
    Literal["multiclass", "multilabel", "ordinal"] | None, typer.Option(help="The kind of target.")
]
ToleranceOption = Annotated[float, typer.Option(help="How far the sum of a row of probabilities may be from one.")]


def load_plugins(paths: Iterable[Path] | None = None) -> None:
    """Import what installed packages and these files register."""
    from dubio.core.registry import load_entry_points, load_plugin

    load_entry_points()
    for path in paths or ():
        load_plugin(path)


def named_files(texts: Iterable[str]) -> dict[str, str]:
    """Return name → path of arguments that are PATH or NAME=PATH, in their order."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).stem, text
        if not name or not path:
            raise UserError(f"system {text!r} must be PATH or NAME=PATH.")
        if name in named:
            raise UserError(f"two systems have the name {name!r}; name them with NAME=PATH.")
        named[name] = path
    return named
