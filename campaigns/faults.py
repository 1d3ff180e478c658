"""Faults on demand: ``python -m campaigns.faults``; ``make faults`` runs it at full size.

Four campaigns: a failure at every n-th system call, lost power, kills of running benchmarks, lost nodes of a Ray
cluster. Figures are printed and written as JSON; the exit code is 1 if anything was found. After Ctrl-C the same
command continues: finished pieces are kept beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from campaigns import shim
from campaigns.pieces import Kept, code_digest, run_pieces, total

SKIPPED = ("--every", "0", "--disks", "0", "--kills", "0", "--rounds", "0")
"""Options that leave every campaign out."""


def run_faults(*arguments: str) -> dict[str, Any]:
    """Run only the campaigns that the arguments ask for; return the figures."""
    with tempfile.TemporaryDirectory(prefix="dubio-figures-") as folder:
        figures = Path(folder) / "figures.json"
        if (code := start([*SKIPPED, *arguments, "--figures", str(figures)])) not in (0, 1):
            raise SystemExit(code)
        document: dict[str, Any] = json.loads(figures.read_text())
        return document


def start(arguments: Sequence[str]) -> int:
    """Run the campaigns in a process that has the library preloaded; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="dubio-fake-") as folder:
        return shim.run_preloaded("campaigns.faults", arguments, DUBIO_FAKE_LOG=folder)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="fail every so-manieth call; 0: no such campaign")
    parser.add_argument("--disks", type=int, default=1000, help="disks after lost power, of each operation; 0: none")
    parser.add_argument("--only", default="", help="only operations whose name matches this regular expression")
    parser.add_argument("--kills", type=int, default=200, help="kills that hit a process; 0: no such campaign")
    parser.add_argument("--torch-share", type=float, default=0.2, help="share of series of kills with fits of torch")
    parser.add_argument("--series", type=int, help="repeat this series of kills alone")
    parser.add_argument("--rounds", type=int, default=20, help="Ray clusters that lose nodes; 0: none")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices")
    parser.add_argument("--jobs", type=int, default=2, help="pieces at a time")
    parser.add_argument("--figures", type=Path, default=Path("faults.json"), help="write the figures here, as JSON")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of every campaign that was asked for."""
    from campaigns.kills import run_kills, undisturbed_pieces
    from campaigns.nodes import node_pieces
    from campaigns.power import power_pieces
    from campaigns.system_calls import call_pieces
    from campaigns.writers import all_operations

    steered = {key: str(value) for key, value in vars(options).items() if key not in ("figures", "jobs")}
    kept = Kept(options.figures.with_name(f"{options.figures.name}.parts"), steered)
    in_pieces = partial(run_pieces, kept=kept, jobs=options.jobs)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dubio-faults-") as folder:
        operations = all_operations(Path(folder), options.only) if options.every or options.disks else []
        campaigns = {
            "lost nodes": node_pieces(options.rounds, options.seed),
            "system calls": call_pieces(operations, options.every) if options.every else [],
            "lost power": power_pieces(operations, options.disks, options.seed) if options.disks else [],
        }
        undisturbed = undisturbed_pieces(options.kills, options.torch_share)
        in_pieces([*(piece for pieces in campaigns.values() for piece in pieces), *undisturbed])
        figures = {name: total(in_pieces(pieces)) for name, pieces in campaigns.items() if pieces}
    if options.kills:
        figures["kills"] = run_kills(options.kills, options.seed, options.torch_share, in_pieces, options.series)
    about = {"options": steered, "code": code_digest(), "seconds": round(time.monotonic() - started)}
    options.figures.write_text(json.dumps({**about, **figures}, indent=1))
    shutil.rmtree(kept.folder)
    return figures


def main() -> None:
    """Run the campaigns that were asked for."""
    options = options_of(sys.argv[1:])
    try:
        if "LD_PRELOAD" not in os.environ:
            sys.exit(start(sys.argv[1:]))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        figures = run(options)
    except shim.NoCompiler as fault:
        print(f"campaigns.faults: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("campaigns.faults: interrupted; the same command continues.", file=sys.stderr)
        sys.exit(130)
    for name, campaign in figures.items():
        print(f"{name}: {json.dumps({key: value for key, value in campaign.items() if key != 'problems'})}")
        print("".join(f"  PROBLEM {line}\n" for line in campaign["problems"]), end="")
    sys.exit(any(campaign["problems"] for campaign in figures.values()))


if __name__ == "__main__":
    main()
