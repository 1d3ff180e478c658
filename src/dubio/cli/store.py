"""``dubio store``: list, verify, clean, export and merge stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from dubio.cli.commands import CommandGroup
from dubio.cli.options import STORE, JsonOption, StoreOption
from dubio.cli.output import MEGABYTE, print_json, print_result, say
from dubio.core.errors import UserError, plural

app = CommandGroup(help="List, verify, clean, export and merge stores.", no_args_is_help=True)


def _counts(numbers: Mapping[str, int], *kinds: str) -> str:
    """Return numbers with their nouns: ``1 fit, 2 predictions``."""
    return ", ".join(f"{numbers[kind]} {plural(kind.removesuffix('s'), numbers[kind])}" for kind in kinds or numbers)


@app.command("ls")
def ls(store: StoreOption = STORE, json: JsonOption = False) -> None:
    """List benchmark runs and the size of the store; exit code 1 if a run's manifest is damaged."""
    from dubio.store import open_store
    from dubio.store.maintenance import overview
    from dubio.store.verification import damaged_manifests

    opened = open_store(store)
    damaged, contents = damaged_manifests(opened), overview(opened)
    lines = [
        f"{run['run']}: {_counts(run, 'runs')} of {_counts({'methods': len(run['methods'])})} "
        f"on {', '.join(run['tasks'])}"
        + (f", {run['failures']} failed" if run["failures"] else "")
        for run in contents["runs"]
    ]
    lines += [f"damaged: {row.error}" for row in damaged]
    counts = _counts(contents, "fits", "predictions")
    lines.append(f"{counts}, {contents['bytes'] / MEGABYTE:.1f} MB")
    print_result(json, {"store": str(store), **contents, "damaged": [row.to_json() for row in damaged]}, lines)
    raise typer.Exit(1 if damaged else 0)


@app.command("verify")
def verify(store: StoreOption = STORE, json: JsonOption = False) -> None:
    """Compare every file with its recorded hash; exit code 1 if something is damaged. Changes nothing."""
    from dubio.store import open_store, verification

    result = verification.examine(open_store(store))
    lines = [*(f"damaged: {row}" for row in result.damages), *(f"note: {note}" for note in result.notes)]
    counts = _counts(result.checked)
    lines.append(f"{counts}: {len(result.damages)} damaged")
    document = {"checked": result.checked, "notes": result.notes}
    damaged = [row.to_json() for row in result.damages]
    print_result(json, {"store": str(store), "damaged": damaged, **document}, lines)
    raise typer.Exit(1 if result.damages else 0)


@app.command("gc")
def gc(store: StoreOption = STORE, unreferenced: bool = False, delete: bool = False, json: JsonOption = False) -> None:
    """List leftovers of dead processes and damaged files that were set aside; --delete removes them.

    Args:
        unreferenced: Also fits, predictions and checkpoints that no run uses.
        delete: Remove them; without it they are only listed.
    """
    from dubio.store import maintenance, open_store

    with open_store(store) as opened:
        rows = maintenance.litter(opened) + (maintenance.unreferenced(opened) if unreferenced else ())
        freed = maintenance.remove(opened, rows) if delete else sum(row.bytes for row in rows)
        listed = [{**vars(row), "path": str(row.path.relative_to(opened.path))} for row in rows]
    lines = [f"{row['path']}: {row['reason']}" for row in listed]
    lines.append(f"{len(rows)} {'removed' if delete else 'to remove (with --delete)'}, {freed / MEGABYTE:.1f} MB")
    print_result(json, {"store": str(store), "removed": delete, "bytes": freed, "rows": listed}, lines)


@app.command("export")
def export(target: Path, run: list[str] | None = None, store: StoreOption = STORE, json: JsonOption = False) -> None:
    """Copy runs with their fits and predictions; the result, unpacked, is a store itself.

    Args:
        target: A new .zip or .tar file, or a new directory.
        run: A run to export; may be repeated. All if omitted.
    """
    from dubio.store import maintenance, open_store

    opened = open_store(store)
    names = tuple(dict.fromkeys(opened.full_name(name) for name in run)) if run else opened.manifests()
    if not names:
        raise UserError(f"the store {str(store)!r} holds no runs to export.")
    files = maintenance.export(opened, names, target)
    if json:
        print_json({"target": str(target), "runs": list(names), "files": [path.as_posix() for path in files]})
        return
    say(f"{len(files)} files of {', '.join(names)} written to {target}")


@app.command("merge")
def merge(stores: list[Path], into: Path = STORE, json: JsonOption = False) -> None:
    """Copy the fits, predictions and runs of several stores into one; exit code 1 if some are damaged or differ.

    Every file is compared with its recorded hash. What is there already stays: repeat an interrupted merge.

    Args:
        stores: The stores to merge, such as those of the shards of a run.
        into: The store that receives them; it is created if necessary.
    """
    from dubio.store import merging, open_store

    sources = [open_store(path) for path in stores]
    with open_store(into, create=True) as target:
        merged = merging.merge(target, sources)
    lines = [f"damaged, left out: {row}" for row in merged.damaged]
    lines += [f"differs: {sentence}" for sentence in merged.conflicts]
    counts = ", ".join(f"{_counts(merged.copied, kind)} ({merged.present[kind]} there)" for kind in merged.copied)
    lines.append(f"copied to {into}: {counts}")
    document = {**vars(merged), "damaged": [row.to_json() for row in merged.damaged], "into": str(into)}
    print_result(json, document, lines)
    raise typer.Exit(1 if merged.damaged or merged.conflicts else 0)
