"""The same systems on the same test set get the same p and verdict from every entrance: command, Python and report.

A report asks about methods. Where training involves no chance, a system is all there is to its method, and the report
says what the others say; where it does, one training of each gives no verdict about methods.
"""

import json

import pytest
import typer
from typer.testing import CliRunner

import dubio
from dubio.cli.evaluate import evaluate
from dubio.estimators import EstimatorBenchmark
from dubio.reporting.build import build_report
from dubio.reporting.measures import HEADLINE, detection_name
from tests.estimators.helpers import SYSTEMS, make_task
from tests.reporting.stored_runs import FakeStore, identifier

METRICS = ("calibrated_nll", "accuracy")

command = typer.Typer(pretty_exceptions_enable=False)
command.command()(evaluate)


def report_of(task, systems, facts):
    """Return the built report of a run in which every system is a method with these facts that ran once."""
    splits = [split for split in task.splits if split.kind in ("id", "ood")]
    manifest = {
        "schema": 1,
        "name": "made-0a1b2c3d",
        "benchmark": {"name": "made", "seeds": [0]},
        "tasks": [
            {
                "name": task.name,
                "arguments": {},
                "inputs": "table",
                "target": task.target,
                "classes": list(task.classes),
                "network": "mlp",
                "network_arguments": {},
                "card": dict.fromkeys(("source", "revision", "licence", "citation", "description"), "made"),
                "notes": [],
                "splits": [
                    {"name": s.name, "kind": s.kind, "fingerprint": s.fingerprint, "examples": len(s)} for s in splits
                ],
            }
        ],
        "methods": [
            {"name": name, "title": name, "members": 1, "samples": 0, "family": name, "facts": facts}
            for name in systems
        ],
        "runs": [
            {
                "id": identifier(name),
                "task": task.name,
                "network": "mlp",
                "method": name,
                "seed": 0,
                "member": 0,
                "fits": [identifier("fit", name)],
                "spec": {"schema": 1, "kind": "prediction", "fit": identifier("fit", name)},
            }
            for name in systems
        ],
        "failures": [],
    }  # fmt: skip
    store = FakeStore(manifest)
    for name, predictions in systems.items():
        environment = {"environment": {}, "seconds": 1.0, "bytes": 1}
        store.records[identifier("fit", name)] = {**environment, "parameters": 1, "epochs": 1}
        store.records[identifier(name)] = {**environment, "examples": 1}
        for split, own in predictions.items():
            store.predictions[identifier(name), split] = own
    return build_report(store, manifest)


def facts(test):
    """Return what every entrance says about a pair, whichever of the two it names first."""
    get = test.__getitem__ if isinstance(test, dict) else lambda name: getattr(test, name)
    first, second = get("first"), get("second")
    sign = 1 if first < second else -1
    return (
        (min(first, second), max(first, second)),
        [sign * get("difference"), get("adjusted_p"), get("resolves")],
        get("better"),
    )


def by_pair(tests):
    return {pair: (numbers, better) for pair, numbers, better in map(facts, tests)}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for pair, (numbers, better) in found.items():
        assert numbers == pytest.approx(expected[pair][0], rel=1e-9, abs=1e-15)
        assert better == expected[pair][1]


@pytest.mark.parametrize("grouped", [False, True])
def test_every_entrance_gives_the_same_p_and_verdict(tmp_path, grouped):
    task = make_task(3, rows=150, group=grouped)
    benchmark = EstimatorBenchmark(task)
    compared = benchmark.compare(SYSTEMS, replicates=50)
    systems = {name: dict(scores.predictions) for name, scores in compared.scores.items()}
    test = {name: own["test"] for name, own in systems.items()}
    far = {name: own["far"] for name, own in systems.items()}

    python = dubio.compare(test, ood=far, metrics=[*METRICS, "ood_auroc"], replicates=50)
    expected = {metric: by_pair(tests) for metric, tests in python.tests.items()}
    assert set(expected) == {*METRICS, "ood_auroc"}
    assert {better is None for pairs in expected.values() for _, better in pairs.values()} == {True, False}

    for metric in METRICS:
        assert_same(by_pair(compared.tests["test"][metric]), expected[metric])

    arguments = ["--json", "--replicates", "50"]
    for name in systems:
        for split in ("test", "far"):
            dubio.write_predictions(tmp_path / f"{name}-{split}.safetensors", systems[name][split])
        arguments += [
            f"{name}={tmp_path / name}-test.safetensors",
            "--ood",
            f"{name}={tmp_path / name}-far.safetensors",
        ]
    for metric in (*METRICS, "ood_auroc"):
        arguments += ["--metric", metric]
    answer = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert json.loads(answer.stdout)["pairs"]["question"] == "systems"
    printed = json.loads(answer.stdout)["pairs"]["metrics"]
    for metric, pairs in expected.items():
        assert_same(by_pair(printed[metric]), pairs)

    scores = report_of(task, systems, {"trainings_vary": False}).run.scores
    by_chance = report_of(task, systems, {"family": "dropout"}).run.scores
    (shown,) = scores.manifest.tasks
    for split, written, metric in (
        *(("test", metric, metric) for metric in METRICS), ("far", detection_name("ood_auroc", HEADLINE), "ood_auroc"),
    ):  # fmt: skip
        assert_same(by_pair(scores.pairs(shown, split, written).tests), expected[metric])
        verdicts = scores.verdicts(shown, split, written)
        places = {verdict.place for verdict in by_chance.verdicts(shown, split, written).values()}
        assert (by_chance.pairs(shown, split, written).question, places) == ("methods", {"best", "unjudged"})
        best = next(name for name, verdict in verdicts.items() if verdict.place == "best")
        for name, verdict in verdicts.items():
            if name != best:
                numbers, better = expected[metric][tuple(sorted((name, best)))]
                assert (verdict.place == "behind") == (better == best)
                assert (verdict.p, verdict.resolves) == pytest.approx(numbers[1:], rel=1e-9, abs=1e-15)
