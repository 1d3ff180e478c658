"""``dubio store``: list, verify, clean and export a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dubio.cli.options import STORE, JsonOption, StoreOption
from dubio.cli.output import print_json, say
from dubio.core.errors import UserError

app = typer.Typer(help="List, verify, clean and export a store.", no_args_is_help=True)

MEGABYTE = 1e6


@app.command("ls")
def ls(store: StoreOption = STORE, json: JsonOption = False) -> None:
    """List benchmark runs and the size of the store; exit code 1 if a run's manifest is damaged."""
    from dubio.store import Store
    from dubio.store.maintenance import damaged_manifests

    opened = Store.open(store, create=False)
    damaged = damaged_manifests(opened)
    runs: list[dict[str, Any]] = []
    for name in sorted({*opened.manifests()} - {row.id for row in damaged}):
        manifest = opened.manifest(name)
        runs.append(
            {
                "run": name,
                "tasks": [task["name"] for task in manifest["tasks"]],
                "methods": [method["name"] for method in manifest["methods"]],
                "runs": len(manifest["runs"]),
                "failures": len(manifest["failures"]),
            }
        )
    fits, predictions = len(opened.ids("fits")), len(opened.ids("predictions"))
    size = sum(path.stat().st_size for path in opened.path.rglob("*") if path.is_file())
    if json:
        print_json({
            "store": str(store), "runs": runs, "damaged": [row.to_json() for row in damaged], "fits": fits,
            "predictions": predictions, "bytes": size,
        })  # fmt: skip
    else:
        for run in runs:
            failed = f", {run['failures']} failed" if run["failures"] else ""
            typer.echo(
                f"{run['run']}: {run['runs']} runs of {len(run['methods'])} methods on "
                f"{', '.join(run['tasks'])}{failed}"
            )
        for row in damaged:
            typer.echo(f"damaged: {row.error}")
        typer.echo(f"{fits} fits, {predictions} predictions, {size / MEGABYTE:.1f} MB")
    if damaged:
        raise typer.Exit(1)


@app.command("verify")
def verify(store: StoreOption = STORE, json: JsonOption = False) -> None:
    """Compare every file with its recorded hash; exit code 1 if something is damaged. Changes nothing."""
    from dubio.store import Store
    from dubio.store.maintenance import verify as verify_store

    opened = Store.open(store, create=False)
    damaged = verify_store(opened)
    if json:
        print_json({"store": str(store), "damaged": [row.to_json() for row in damaged]})
    else:
        for row in damaged:
            typer.echo(f"damaged: {row.kind} {row.id}: {row.error}")
        count = len(opened.ids("fits")) + len(opened.ids("predictions"))
        typer.echo(
            f"{count} fits and predictions, {len(damaged)} damaged"
            + ("; the next run makes those it needs again" if damaged else "")
        )
    if damaged:
        raise typer.Exit(1)


@app.command("gc")
def gc(
    store: StoreOption = STORE,
    unreferenced: Annotated[
        bool, typer.Option("--unreferenced", help="Also fits, predictions and checkpoints that no run uses.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove them; without it they are only listed.")] = False,
    json: JsonOption = False,
) -> None:
    """List leftovers of dead processes and damaged files that were set aside; --delete removes them."""
    from dubio.store import Store, maintenance

    with Store.open(store, create=False) as opened:
        rows = maintenance.litter(opened) + (maintenance.unreferenced(opened) if unreferenced else ())
        freed = maintenance.remove(opened, rows) if delete else sum(row.bytes for row in rows)
        listed = [
            {"path": str(row.path.relative_to(opened.path)), "reason": row.reason, "bytes": row.bytes} for row in rows
        ]
    if json:
        print_json({"store": str(store), "removed": delete, "bytes": freed, "rows": listed})
        return
    for row in listed:
        typer.echo(f"{row['path']}: {row['reason']}")
    typer.echo(f"{len(rows)} {'removed' if delete else 'to remove (with --delete)'}, {freed / MEGABYTE:.1f} MB")


@app.command("export")
def export(
    target: Annotated[Path, typer.Argument(help="A new .zip or .tar file, or a new directory.")],
    run: Annotated[list[str] | None, typer.Option(help="A run to export; may be repeated. All if omitted.")] = None,
    store: StoreOption = STORE,
    json: JsonOption = False,
) -> None:
    """Copy runs with their fits and predictions; the result, unpacked, is a store itself."""
    from dubio.store import Store
    from dubio.store.maintenance import export as export_runs

    opened = Store.open(store, create=False)
    names = tuple(dict.fromkeys(opened.full_name(name) for name in run)) if run else opened.manifests()
    if not names:
        raise UserError(f"the store {str(store)!r} holds no runs to export.")
    files = export_runs(opened, names, target)
    if json:
        print_json({"target": str(target), "runs": list(names), "files": [path.as_posix() for path in files]})
        return
    say(f"{len(files)} files of {', '.join(names)} written to {target}")
