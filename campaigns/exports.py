"""What the campaigns disturb beside a store: every kind of file for users, such as policies, reports and exports."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.operations import Folder, Operation, State, digest, observe_store, run_inline, small_store
from dubio.store import Store
from dubio.store.maintenance import export


def observe_files(folder: Path) -> State:
    """Return the hash of every exported file, and of every folder as one thing.

    Half-made ones aside do not count, they have names of their own; nor do finished chunks of a prediction job.
    """
    state: State = {}
    for entry in sorted((folder / "out").iterdir()) if (folder / "out").is_dir() else ():
        if not is_scratch(entry) and entry.suffix != ".parts":
            paths = sorted(path for path in (entry, *entry.rglob("*")) if path.is_file() and not is_scratch(path))
            contents = (f"{path.relative_to(entry)}\0".encode() + path.read_bytes() for path in paths)
            state[f"out/{entry.name}"] = digest(*contents)
    return state


def is_scratch(path: Path) -> bool:
    """Return whether a path is, or lies in, what dubio writes aside before a rename."""
    return any(part.startswith(".") and part.endswith(".tmp") for part in path.parts)


def export_as(name: str) -> Folder:
    """Return an act that exports the runs of a store."""

    def act(folder: Path) -> None:
        with Store.open(folder / "store", create=False) as store:
            export(store, store.manifests(), folder / "out" / name)

    return anew(name, act)


def anew(name: str, act: Folder) -> Folder:
    """Return an act for a command that never replaces an output: tried again, it begins anew."""

    def begin(folder: Path) -> None:
        output = folder / "out" / name
        if output.is_dir():
            shutil.rmtree(output)
        elif output.exists():
            output.unlink()
        act(folder)

    return begin


def command(*arguments: str) -> Folder:
    """Return an act that runs ``dubio`` with these arguments; ``{}`` stands for the folder."""

    def act(folder: Path) -> None:
        import typer

        from dubio.__main__ import main

        if not hasattr(typer.main.get_command, "cache_info"):  # building all commands takes half of a case's time
            typer.main.get_command = lru_cache(typer.main.get_command)
        sys.argv = ["dubio", *(argument.replace("{}", str(folder)) for argument in arguments)]
        main()

    return act


def prediction_file(folder: Path, older: Iterable[str] = ()) -> None:
    """Prepare a prediction file of 200 rows, and older outputs that are to be replaced."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 200)
    logits = generator.normal(size=(200, 3)) + 3 * np.eye(3)[labels]
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.savez(folder / "mine.npz", probs=probs, labels=labels)
    (folder / "out").mkdir()
    for name in older:
        (folder / "out" / name).write_bytes(b"what was there before")


def before_apply(folder: Path) -> None:
    """Prepare a policy and a recalibration to apply."""
    prediction_file(folder, ("decisions.csv", "scaled.npz"))
    for arguments in (POLICY, RECALIBRATION):
        run_quietly(command(*(argument.replace("out/", "") for argument in arguments)), folder)


def run_quietly(act: Folder, folder: Path) -> None:
    """Run a command that ends with an exit code.

    Raises:
        RuntimeError: When the code is not 0.
    """
    try:
        act(folder)
    except SystemExit as end:
        if end.code not in (0, None):
            raise RuntimeError(f"{sys.argv}: exit code {end.code}") from end


@lru_cache
def small_fit() -> Any:
    """Return a small torch module, fitted once for all cases."""
    import torch

    import dubio
    from dubio.methods.arguments import Training
    from dubio.methods.dropout import deterministic

    rows = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    torch.manual_seed(0)
    recipe = deterministic(training=Training(epochs=1))
    return dubio.fit(recipe, network=torch.nn.Linear(4, 2), train=(rows, (rows[:, 0] > 0).astype(np.int64)))


def save_fit(folder: Path) -> None:
    """Save a fitted torch module."""
    small_fit().save(folder / "out" / "fit.safetensors")


RECALIBRATION = ("calibrate", "fit", "{}/mine.npz", "-o", "{}/out/recalibration.json")
POLICY = ("refer", "fit", "{}/mine.npz", "--max-risk", "0.2", "-o", "{}/out/policy.json")


def reported_run(folder: Path) -> None:
    """Prepare a finished run, and an older report."""
    run_inline(folder)
    (folder / "out").mkdir()
    for name in ("report.html", "results.csv"):
        (folder / "out" / name).write_bytes(b"what was there before")


def without_rendering(act: Folder) -> Folder:
    """Return an act whose page is rendered once for all cases.

    Rendering takes seconds and touches no file, and the threads that draw do not outlive a fork.
    """

    def write(folder: Path) -> None:
        from dubio.reporting import page, reported, sheet

        if page.render.__name__ != once.__name__:
            for name, modules in (("render", (page, reported)), ("render_sheet", (page, sheet))):
                rendered = once(getattr(page, name))
                for module in modules:
                    setattr(module, name, rendered)
        act(folder)

    return write


def once(render: Callable[..., str]) -> Callable[..., str]:
    """Return a function that renders when it is first called, and answers the same ever after."""
    page: list[str] = []

    def rendered(*arguments: Any, **options: Any) -> str:
        if not page:
            page.append(render(*arguments, **options))
        return page[0]

    rendered.__name__ = once.__name__
    return rendered


def before_merge(folder: Path) -> None:
    """Prepare a store, and another with a run that it is to receive."""
    small_store(folder)
    (folder / "shard").mkdir()
    run_inline(folder / "shard")


def with_older(*names: str) -> Folder:
    """Return a preparation with older outputs."""
    return lambda folder: prediction_file(folder, names)


def export_operations() -> list[Operation]:
    """Return every kind of exported file, and the merging of stores."""
    rows: Mapping[str, tuple[Folder, Folder]] = {
        "calibrate fit": (with_older("recalibration.json"), command(*RECALIBRATION)),
        "refer fit": (with_older("policy.json"), command(*POLICY)),
        "calibrate apply": (
            before_apply,
            command("calibrate", "apply", "{}/recalibration.json", "{}/mine.npz", "-o", "{}/out/scaled.npz"),
        ),
        "refer apply": (
            before_apply, command("refer", "apply", "{}/policy.json", "{}/mine.npz", "-o", "{}/out/decisions.csv"),
        ),
        "report": (reported_run, without_rendering(command("report", "--store", "{}/store", "--out", "{}/out"))),
        "save a torch module": (with_older("fit.safetensors"), save_fit),
        "export a folder": (run_inline, export_as("copy")),
        "export a zip": (run_inline, export_as("copy.zip")),
        "export a tar": (run_inline, export_as("copy.tar")),
    }  # fmt: skip
    merge = command("store", "merge", "{}/shard/store", "--into", "{}/store")
    return [
        *(Operation(name, prepare, act, observe_files) for name, (prepare, act) in rows.items()),
        Operation("merge stores", before_merge, merge, observe_store),
    ]
