"""Faults on demand: ``python -m campaigns.faults``; ``make faults`` runs it at full size.

Three campaigns: kills of running benchmarks, a failure at every n-th system call, and lost power. Figures are printed
and written as JSON; the exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from campaigns import shim


def preloaded(module: str, *arguments: str) -> dict[str, Any]:
    """Run a campaign in a process with the preloaded library; return its figures."""
    with tempfile.TemporaryDirectory(prefix="dubio-figures-") as folder:
        figures = Path(folder) / "figures.json"
        if code := shim.run_preloaded(module, [*arguments, "--figures", str(figures)], DUBIO_FAKE_LOG=folder):
            raise SystemExit(code)
        document: dict[str, Any] = json.loads(figures.read_text())
        return document


def main() -> None:
    """Run the campaigns that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills that hit a process; 0: no such campaign")
    parser.add_argument("--torch-share", type=float, default=0.2, help="share of series of kills with fits of torch")
    parser.add_argument("--series", type=int, help="repeat this series of kills alone")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices")
    parser.add_argument("--every", type=int, default=1, help="fail every so-manieth call; 0: no such campaign")
    parser.add_argument("--disks", type=int, default=1000, help="disks after lost power, of each operation; 0: none")
    parser.add_argument("--figures", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    try:
        figures = run(options)
    except shim.NoCompiler as fault:
        print(f"campaigns.faults: {fault}", file=sys.stderr)
        sys.exit(2)
    if options.figures:
        options.figures.write_text(json.dumps(figures, indent=1))
    for name, campaign in figures.items():
        print(f"{name}: {json.dumps({key: value for key, value in campaign.items() if key != 'problems'})}")
        print("".join(f"  PROBLEM {line}\n" for line in campaign["problems"]), end="")
    sys.exit(any(campaign["problems"] for campaign in figures.values()))


def run(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the figures of every campaign that was asked for."""
    figures = {}
    if options.every:
        figures["system calls"] = preloaded("campaigns.system_calls", "--every", str(options.every))
    if options.disks:
        arguments = ("--most", str(options.disks), "--seed", str(options.seed))
        figures["lost power"] = preloaded("campaigns.power", *arguments)
    if options.kills:
        from campaigns.kills import run_campaign

        figures["kills"] = run_campaign(options.kills, options.seed, options.torch_share, options.series)
    return figures


if __name__ == "__main__":
    main()
