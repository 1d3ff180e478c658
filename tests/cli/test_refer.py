"""The command ``dubio refer``."""

import csv
import hashlib
import json

import numpy as np
import pytest
from scipy.stats import binom

from dubio.cli.refer import app
from dubio.core.errors import BadFile, UserError
from dubio.core.predictions import Predictions
from dubio.formats import read_predictions, write_predictions
from dubio.referral import NoGuarantee, apply_policy, fit_capacity_policy, fit_risk_policy
from dubio.referral.sample_size import units_needed
from tests.cli.helpers import invoke


def run(*arguments):
    return invoke(app, *arguments)


def drawn(rows, seed, sharpness=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    score = (2 * labels - 1) * rng.gamma(2, 1.5, rows) + rng.normal(0, 1, rows)
    return 1 / (1 + np.exp(-sharpness * score)), labels


@pytest.fixture
def files(tmp_path):
    for name, rows, seed, sharpness in (("cal", 800, 0, 1.0), ("new", 300, 1, 1.0), ("far", 300, 2, 0.2)):
        probs, labels = drawn(rows, seed, sharpness)
        np.savez(tmp_path / f"{name}.npz", probs=probs, labels=labels)
    probs, _ = drawn(50, 3)
    np.savez(tmp_path / "bare.npz", probs=probs, ids=np.array([f"p{k}" for k in range(50)]))
    return tmp_path


def test_fit_writes_a_policy_and_apply_a_decision_for_each_row(files):
    fitted = run("fit", files / "cal.npz", "--max-risk", 0.05, "--confidence", 0.95, "-o", files / "policy.json")
    assert fitted.exit_code == 0
    assert "below 0.05" in fitted.stdout
    assert "dubio cannot know" in fitted.stderr
    policy = json.loads((files / "policy.json").read_text())
    applied = run("apply", files / "policy.json", files / "bare.npz", "-o", files / "decisions.csv")
    assert applied.exit_code == 0
    rows = list(csv.DictReader((files / "decisions.csv").open(encoding="utf-8")))
    assert [row["id"] for row in rows] == [f"p{k}" for k in range(50)]
    assert list(rows[0]) == ["id", "decision", "predicted", "probability", "uncertainty", "shift", "reason"]
    probs = np.load(files / "bare.npz")["probs"]
    for row, p in zip(rows, probs, strict=True):
        assert row["predicted"] == str(int(p > 0.5))
        assert float(row["uncertainty"]) == pytest.approx(min(p, 1 - p), rel=1e-4)
        assert row["decision"] == ("retain" if float(row["uncertainty"]) <= policy["threshold"] else "refer")
        assert "threshold" in row["reason"]
    assert not list(files.glob(".*"))


def test_rows_without_ids_are_numbered(files):
    run("fit", files / "cal.npz", "--capacity", 0.2, "-o", files / "policy.json")
    run("apply", files / "policy.json", files / "new.npz", "-o", files / "d.csv")
    rows = list(csv.DictReader((files / "d.csv").open(encoding="utf-8")))
    assert [row["id"] for row in rows] == [str(k) for k in range(300)]
    assert 0.1 < sum(row["decision"] == "refer" for row in rows) / 300 < 0.3


def test_shifted_data_are_warned_of_and_exit_with_zero(files):
    run("fit", files / "cal.npz", "--max-risk", 0.05, "-o", files / "policy.json")
    result = run("apply", files / "policy.json", files / "far.npz", "-o", files / "d.csv")
    assert result.exit_code == 0
    assert "warning: The uncertainties have shifted" in result.stderr
    assert "p = " in result.stderr
    assert f"{result.stdout}{result.stderr}".count("Kolmogorov") == 1  # not in the result, too
    calm = run("apply", files / "policy.json", files / "new.npz", "-o", files / "d.csv")
    assert "No significant shift" in calm.stdout
    assert "Kolmogorov" not in calm.stderr
    said = run("apply", files / "policy.json", files / "far.npz", "-o", files / "d.csv", "--json").stdout
    document = json.loads(said)
    assert document["shift"]["significant"] is True
    assert document["shift"]["p_value"] < 0.01
    assert document["warnings"]
    assert document["retained"] + document["referred"] == document["rows"] == 300
    calm = json.loads(run("apply", files / "policy.json", files / "new.npz", "-o", files / "d.csv", "--json").stdout)
    assert calm["warnings"] == []


def test_screening_and_json(files):
    goals = ("--sensitivity", 0.85, "--specificity", 0.8, "--quantity", "predictive_entropy")
    document = json.loads(run("fit", files / "cal.npz", *goals, "-o", files / "s.json", "--json").stdout)
    assert document["kind"] == "screening"
    assert document["goals"] == {"sensitivity": 0.85, "specificity": 0.8}
    assert document["threshold"] is None  # good enough without referral
    assert "seen" not in document
    assert len(json.loads((files / "s.json").read_text())["seen"]) == 800


def test_validation_split_is_refused_unless_forced(files):
    probs, labels = drawn(400, 5)
    logits = np.log(np.stack([1 - probs, probs], 1))[None].astype(np.float32)
    write_predictions(files / "val.safetensors", Predictions(logits, labels, kind="val"))
    with pytest.raises(UserError, match="'val' and was used for selection"):
        run("fit", files / "val.safetensors", "--max-risk", 0.2, "-o", files / "p.json")
    assert not (files / "p.json").exists()
    forced = run("fit", files / "val.safetensors", "--max-risk", 0.2, "-o", files / "p.json", "--force")
    assert "No guarantee" in forced.stdout
    applied = run("apply", files / "p.json", files / "new.npz", "-o", files / "d.csv")
    assert "warning: No guarantee" in applied.stderr


def test_a_refusal_says_how_many_rows_it_would_take(files):
    # half is sure, 1 of 50 of it wrong; of the rest half is wrong
    sure, wrong = np.arange(100) < 50, (np.arange(100) == 0) | ((np.arange(100) >= 50) & (np.arange(100) % 2 == 0))
    given = {"probs": np.where(sure, 0.1, 0.4), "labels": wrong.astype(int)}
    np.savez(files / "few.npz", **given)
    options = {"max_risk": 0.06, "confidence": 0.95, "quantity": "confidence"}
    like = Predictions(np.log(np.stack([1 - given["probs"], given["probs"]], 1))[None], given["labels"])
    needed = units_needed(like, **options)
    assert needed is not None
    assert needed.units > 100
    with pytest.raises(NoGuarantee, match=f"about {needed.units} are needed, retaining 50%; there are 100 now"):
        run("fit", files / "few.npz", "--max-risk", 0.06, "-o", files / "p.json")
    names = np.repeat(np.arange(50), 2).astype(str)
    np.savez(files / "grouped.npz", **given, group=names)
    with pytest.raises(NoGuarantee, match=r"groups .* needed.* there are 50 now"):
        run("fit", files / "grouped.npz", "--max-risk", 0.15, "-o", files / "p.json")
    # with 1 of 50 wrong no number of rows shows 0.01; without an error n rows do where 0.99ⁿ is nine tenths of 0.05
    assert 0.99**309 <= 0.9 * 0.05 < 0.99**308
    with pytest.raises(NoGuarantee, match=r"10,000 rows.*0\.01 needs 309 rows"):
        run("fit", files / "few.npz", "--max-risk", 0.01, "-o", files / "p.json")
    assert not (files / "p.json").exists()


def test_mistakes_are_named(files):
    cal, out = files / "cal.npz", files / "p.json"
    with pytest.raises(UserError, match=r"give one goal: .*given none"):
        run("fit", cal, "-o", out)
    with pytest.raises(UserError, match="given --max-risk, --capacity"):
        run("fit", cal, "--max-risk", 0.1, "--capacity", 0.1, "-o", out)
    with pytest.raises(UserError, match="best that can be guaranteed"):
        run("fit", cal, "--max-risk", 0.001, "-o", out)
    with pytest.raises(UserError, match=r"sensitivity .* must lie between 0 and 1; given 0"):
        run("fit", cal, "--sensitivity", 0, "-o", out)
    assert not out.exists()
    with pytest.raises(BadFile, match="cannot be read"):
        run("apply", files / "none.json", cal, "-o", files / "d.csv")
    with pytest.raises(BadFile, match="is not JSON"):
        run("apply", cal, cal, "-o", files / "d.csv")
    assert not (files / "d.csv").exists()


def test_a_policy_records_how_rows_without_a_label_are_decided_and_applies_it(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.eye(3, dtype=np.int64)[rng.integers(0, 3, 600)]
    probs = np.where(labels == 1, 0.45, 0.1) * rng.uniform(0.5, 1, (600, 3))
    np.savez(tmp_path / "cal.npz", probs=probs, labels=labels)
    common = tmp_path / "cal.npz", "--target", "multilabel", "--max-risk", 0.1, "-o", tmp_path / "policy.json"
    with pytest.raises(NoGuarantee):
        run("fit", *common)
    assert run("fit", *common, "--empty-decision", "argmax").exit_code == 0
    assert json.loads((tmp_path / "policy.json").read_text())["empty_decision"] == "argmax"
    applied = run("apply", tmp_path / "policy.json", tmp_path / "cal.npz", "-o", tmp_path / "d.csv", "--json")
    assert json.loads(applied.stdout)["retained_error"] == 0.0


def patients_whose_rows_are_all_right_or_all_wrong(seed):
    """Forty patients of ten rows, each wrong with probability 0.1 whatever its confidence: the risk is 0.1 anywhere."""
    rng = np.random.default_rng(seed)
    patients = np.repeat(np.arange(40), 10)
    wrong, doubts = (rng.random(40) < 0.1)[patients], rng.random(400) / 2
    probs = np.where(wrong[:, None] == np.array([False, True]), 1 - doubts[:, None], doubts[:, None])
    return {"probs": probs, "labels": np.zeros(400, dtype=int), "patient_id": patients}


def test_patients_that_are_not_named_are_refused_and_named_ones_keep_the_guarantee(tmp_path):
    path, refused, violated, violated_by_rows = tmp_path / "cal.npz", 0, 0, 0
    for seed in range(150):
        np.savez(path, **patients_whose_rows_are_all_right_or_all_wrong(seed))
        with pytest.raises(UserError, match="'patient_id' looks like groups"):
            read_predictions(path)
        refused += 1
        violated += has_policy(read_predictions(path, group="patient_id"))
        violated_by_rows += has_policy(read_predictions(path, rows_are_independent=True))
    assert refused == 150
    assert violated <= binom.ppf(0.999, 150, 0.05)  # any policy is a violation: the true risk is the bound
    assert violated_by_rows > 30  # what the refusal prevents: 7.5 would be allowed
    fit = ("fit", path, "--max-risk", 0.3, "-o", tmp_path / "p.json")
    with pytest.raises(UserError, match=r"'patient_id' looks like groups.*--group patient_id") as refusal:
        run(*fit)
    assert refusal.value.exit_code == 2
    assert not (tmp_path / "p.json").exists()
    assert "mean over groups" in run(*fit, "--group", "patient_id").stdout


def has_policy(calibration):
    try:
        return bool(fit_risk_policy(calibration, max_risk=0.1).threshold)
    except NoGuarantee:
        return False


def test_unused_columns_are_named_in_notes_and_json(files):
    probs, labels = drawn(400, 7)
    columns = {"patient": np.arange(400) // 2, "site": np.array(["a", "b"] * 200)}
    np.savez(files / "cal.npz", probs=probs, labels=labels, **columns)
    fitted = run("fit", files / "cal.npz", "--capacity", 0.2, "--group", "patient", "-o", files / "p.json", "--json")
    assert "Columns that are not used: site." in json.loads(fitted.stdout)["notes"]
    fitted = run("fit", files / "cal.npz", "--capacity", 0.2, "--rows-are-independent", "-o", files / "p.json")
    assert "note: Columns that are not used: patient, site." in fitted.stderr
    assert "declared independent" in fitted.stderr
    assert any("declared independent" in note for note in json.loads((files / "p.json").read_text())["notes"])
    with pytest.raises(UserError, match="'patient' looks like groups"):
        run("apply", files / "p.json", files / "cal.npz", "-o", files / "d.csv")


def test_outcomes_and_shifts_set_the_exit_code_where_asked(files):
    run("fit", files / "cal.npz", "--max-risk", 0.05, "-o", files / "policy.json")
    probs, labels = drawn(300, 8)
    np.savez(files / "bad.npz", probs=probs, labels=1 - labels)  # as certain as before, and nearly always wrong
    apply = ("apply", files / "policy.json")
    out = ("-o", files / "d.csv")
    violated = run(*apply, files / "bad.npz", *out, "--fail-on", "violated,shift")
    assert violated.exit_code == 3
    assert "failed on: violated" in violated.stderr
    assert "guaranteed below 0.05: violated" in violated.stdout
    assert (files / "d.csv").exists()
    assert run(*apply, files / "bad.npz", *out).exit_code == 0
    assert run(*apply, files / "bad.npz", *out, "--fail-on", "shift").exit_code == 0
    shifted = run(*apply, files / "far.npz", *out, "--fail-on", "shift", "--json")
    assert shifted.exit_code == 3
    assert json.loads(shifted.stdout)["shift"]["significant"]
    assert run(*apply, files / "new.npz", *out, "--fail-on", "violated, shift").exit_code == 0
    with pytest.raises(UserError, match=r"--fail-on 'violatd'.*Did you mean 'violated'"):
        run(*apply, files / "new.npz", *out, "--fail-on", "violatd")
    (files / "d.csv").unlink()
    with pytest.raises(UserError, match="--fail-on violated needs labels"):
        run(*apply, files / "bare.npz", *out, "--fail-on", "violated")
    assert not (files / "d.csv").exists()


def test_class_names_that_only_one_file_has_need_force(files):
    probs, labels = drawn(100, 9)
    np.savez(files / "named.npz", probs=probs, labels=labels, classes=np.array(["no", "yes"]))
    run("fit", files / "cal.npz", "--capacity", 0.2, "-o", files / "p.json")
    apply = ("apply", files / "p.json", files / "named.npz", "-o", files / "d.csv")
    with pytest.raises(UserError, match=r"These predictions name the classes.*--force"):
        run(*apply)
    forced = run(*apply, "--force", "--json")
    assert "order cannot be compared" in json.loads(forced.stdout)["warnings"][0]


def test_subgroups_and_decisions_per_group(files):
    probs, labels = drawn(400, 7)
    columns = {"patient": np.arange(400) // 2, "site": np.array(["a", "b"] * 200)}
    np.savez(files / "g.npz", probs=probs, labels=labels, **columns)
    common = ("--group", "patient", "--by", "site")
    fitted = run("fit", files / "g.npz", "--capacity", 0.2, *common, "-o", files / "p.json")
    assert "decisions by site" in fitted.stdout
    assert "nothing is guaranteed for a single subgroup" in fitted.stderr
    apply = ("apply", files / "p.json", files / "g.npz", *common, "--per", "group", "-o", files / "d.csv")
    assert "retained whole" in run(*apply).stdout
    document = json.loads(run(*apply, "--json").stdout)
    assert document["subgroups"]["site"]["a"]["rows"] == 200
    assert document["groups"]["groups"] == 200
    rows = list(csv.DictReader((files / "d.csv").open(encoding="utf-8")))
    assert [row["group"] for row in rows] == [str(k // 2) for k in range(400)]
    assert [row["site"] for row in rows[:3]] == ["a", "b", "a"]


@pytest.fixture
def two_systems(files):
    """A second system on the calibration rows: the same scores with noise."""
    probs, labels = drawn(800, 0)
    scores = np.log(probs / (1 - probs)) + np.random.default_rng(5).normal(size=800)
    np.savez(files / "noisy.npz", probs=1 / (1 + np.exp(-scores)), labels=labels)
    return files


def test_targets_write_a_folder_of_policies_that_apply_takes(two_systems):
    arguments = ("fit", two_systems / "cal.npz", f"b/<={two_systems / 'noisy.npz'}", "--targets", "default")
    fitted = run(*arguments, "-o", two_systems / "out")
    assert fitted.exit_code == 0
    assert "(5 targets × 2 systems) hold at once with 0.95 confidence" in fitted.stdout
    table = [line.split() for line in fitted.stdout.splitlines() if line.startswith(("cal ", "b/< "))]
    assert [(row[0], row[1]) for row in table] == [
        (system, target) for system in ("cal", "b/<") for target in ("0.01", "0.02", "0.05", "0.1", "0.2")
    ]
    written = {path.name for path in (two_systems / "out").iterdir()}
    assert {row[-1] for row in table if row[3] == "yes"} == written
    assert {row[-1] for row in table if row[3] == "no"} == {"–"}
    assert "target 0.01: " in fitted.stderr  # how much calibration data it would take
    assert "risk-0.1-b.json" in written
    assert not list(two_systems.glob(".*"))
    policy = fit_risk_policy(read_predictions(two_systems / "cal.npz"), max_risk=0.05, confidence=1 - 0.05 / 10)
    assert json.loads((two_systems / "out" / "risk-0.05-cal.json").read_text())["threshold"] == policy.threshold
    applied = run(
        "apply", two_systems / "out" / "risk-0.1-cal.json", two_systems / "new.npz", "-o", two_systems / "d.csv"
    )
    assert "guaranteed below 0.1" in applied.stdout
    assert "note: The guarantees of all policies fitted together (5 targets × 2 systems)" in applied.stderr


def test_targets_as_json_with_subgroups(two_systems):
    arrays = dict(np.load(two_systems / "cal.npz"))
    np.savez(two_systems / "sites.npz", **arrays, site=np.array(["x", "y"] * 400))
    (two_systems / "empty").mkdir()
    arguments = (
        "fit",
        two_systems / "sites.npz",
        "--targets",
        "0.2,0.001",
        "--by",
        "site",
        "-o",
        two_systems / "empty",
    )
    document = json.loads(run(*arguments, "--json").stdout)
    unmet, met = document["systems"][0]["stops"]
    assert (document["targets"], document["each_confidence"]) == ([0.001, 0.2], 0.975)
    assert (unmet["guaranteed"], unmet["file"]) == (False, None)
    assert "max_risk 0.001" in unmet["refusal"]
    assert sum(own["rows"] for own in met["subgroups"]["site"].values()) == 800
    assert [path.name for path in (two_systems / "empty").iterdir()] == [met["file"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cal.npz", "--targets", "0.1,0.2", "--max-risk", "0.1"), "given --max-risk, --targets"),
        (("cal.npz", "--targets", "0.05"), "at least two targets for one system; for one: --max-risk 0.05"),
        (("cal.npz", "--targets", "0.2,0.1,0.20"), "different; given 0.2 more than once"),
        (("cal.npz", "--targets", "0,0.1"), "between 0 and 1; given 0.0"),
        (("cal.npz", "--targets", "0.1,1"), "between 0 and 1; given 1.0"),
        (("cal.npz", "--targets", "nan,0.1"), "between 0 and 1; given nan"),
        (("cal.npz", "--targets", "0.1,,0.2"), "separated by commas, or default; given '0.1,,0.2'"),
        (("cal.npz", "cal.npz", "--targets", "0.1"), "two systems have the name 'cal'"),
        (("cal.npz", "new.npz", "--targets", "0.1"), "one has 800 rows and the other 300"),
        (("cal.npz", "noisy.npz", "--max-risk", "0.1"), "--max-risk is for one system; given 2 files"),
        (("cal.npz", "noisy.npz", "--targets", "1e-4,2e-4"), "none of 2 targets × 2 systems.*cal, target 0.0002:"),
    ],
)
def test_targets_that_cannot_be_fitted_write_nothing(two_systems, monkeypatch, arguments, message):
    monkeypatch.chdir(two_systems)
    with pytest.raises(UserError, match=message):
        run("fit", *arguments, "-o", "out")
    assert not (two_systems / "out").exists()


def test_a_folder_with_files_is_refused_because_older_policies_would_stay(two_systems):
    (two_systems / "out").mkdir()
    (two_systems / "out" / "older.json").write_text("{}")
    for output in (two_systems / "out", two_systems / "cal.npz", "/dev/stdout"):
        with pytest.raises(UserError, match="must be a new or an empty folder"):
            run("fit", two_systems / "cal.npz", "--targets", "0.1,0.2", "-o", output)
    assert (two_systems / "out" / "older.json").read_text() == "{}"


def test_the_sheet_of_a_policy_is_written_beside_it_and_names_its_file(files):
    output, sheet = files / "policy.json", files / "sheet.html"
    fitted = run("fit", files / "cal.npz", "--max-risk", 0.05, "-o", output, "--report", sheet)
    assert f"report: {sheet}" in fitted.stderr
    page = sheet.read_text(encoding="utf-8")
    assert hashlib.sha256(output.read_bytes()).hexdigest() in page
    assert "The threshold was chosen on these rows" in page
    assert "<script" not in page
    arguments = ("apply", output, files / "new.npz", "-o", files / "d.csv", "--report", sheet)
    document = json.loads(run(*arguments, "--json").stdout)
    assert (document["path"], document["report"]) == (str(files / "d.csv"), str(sheet))
    page = sheet.read_text(encoding="utf-8")
    assert "The threshold was chosen on these rows" not in page
    (rate,) = document["rates"]
    assert f'<td class="{rate["outcome"]}"' in page
    assert f"{rate['value']:.4f}" in page
    run("apply", output, files / "cal.npz", "-o", files / "d.csv", "--report", sheet)
    assert "The threshold was chosen on these rows" in sheet.read_text(encoding="utf-8")
    assert "report" not in json.loads(run(*arguments[:-2], "--json").stdout)


def test_the_sheet_shows_subgroups_and_a_policy_of_a_grid(two_systems):
    arrays = dict(np.load(two_systems / "cal.npz"))
    np.savez(two_systems / "sites.npz", **arrays, site=np.array(["<b>x</b>", "y"] * 400))
    goal = ("--capacity", 0.2, "--by", "site")
    run("fit", two_systems / "sites.npz", *goal, "-o", two_systems / "p.json", "--report", two_systems / "s.html")
    page = (two_systems / "s.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x</b>" not in page
    run("fit", two_systems / "cal.npz", two_systems / "noisy.npz", "--targets", "0.1,0.2", "-o", two_systems / "grid")
    policy = two_systems / "grid" / "risk-0.1-cal.json"
    run("apply", policy, two_systems / "new.npz", "-o", two_systems / "d.csv", "--report", two_systems / "s.html")
    assert "2 targets × 2 systems" in (two_systems / "s.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-risk", 0.05, "--report", "sheet.pdf"), r"--report 'sheet.pdf': the name must end in \.html"),
        (("--max-risk", 0.05, "--report", "cal.html"), "--report 'cal.html' is the input 'cal.npz'"),
        (("--max-risk", 0.05, "--report", "sub/../out.html"), "is the file of --output"),
        (("--targets", "0.1,0.2", "--report", "sheet.html"), "--report is the sheet of one policy; given --targets"),
        (("--max-risk", 1e-4, "--report", "sheet.html"), "no threshold on these 800 rows"),
    ],
)
def test_a_sheet_that_cannot_be_written_leaves_nothing(files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    (files / "cal.html").symlink_to("cal.npz")
    before = sorted(files.iterdir()), (files / "cal.npz").read_bytes()
    with pytest.raises(UserError, match=message):
        run("fit", "cal.npz", *arguments, "-o", "out.html")
    assert (sorted(files.iterdir()), (files / "cal.npz").read_bytes()) == before


def test_decisions_are_parquet_where_their_name_says_so_and_other_formats_are_refused(files):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("fit", files / "cal.npz", "--max-risk", 0.05, "-o", files / "policy.json").exit_code == 0
    for name in ("d.csv", "d.parquet"):
        assert run("apply", files / "policy.json", files / "bare.npz", "-o", files / name).exit_code == 0
    rows = list(csv.DictReader((files / "d.csv").open(encoding="utf-8")))
    table = parquet.read_table(files / "d.parquet")
    assert table.column_names == list(rows[0])
    assert table.column("decision").to_pylist() == [row["decision"] for row in rows]
    probs = np.load(files / "bare.npz")["probs"]
    np.testing.assert_allclose(table.column("uncertainty").to_numpy(), np.minimum(probs, 1 - probs), rtol=1e-4)
    with pytest.raises(UserError, match=r"--output must end in \.csv or \.parquet; given .*d\.xlsx"):
        run("apply", files / "policy.json", files / "bare.npz", "-o", files / "d.xlsx")
    assert not (files / "d.xlsx").exists()


def test_new_rows_without_the_score_of_the_policy_are_refused_with_the_column_that_is_missing(files):
    """It read "unknown uncertainty quantity 'energy'", and named neither file."""
    probs, labels = drawn(800, 0)
    np.savez(files / "own.npz", probs=probs, labels=labels, **{"score.energy": np.minimum(probs, 1 - probs)})
    for quantity in ("score.energy", "energy"):
        fitted = run("fit", files / "own.npz", "--capacity", 0.2, "--quantity", quantity, "-o", files / "policy.json")
        assert fitted.exit_code == 0
        assert json.loads((files / "policy.json").read_text())["quantity"] == "energy"
    with pytest.raises(UserError, match=r"policy\.json.*new\.npz.* have no column 'score\.energy'"):
        run("apply", files / "policy.json", files / "new.npz", "-o", files / "d.csv")
    assert run("apply", files / "policy.json", files / "own.npz", "-o", files / "d.csv").exit_code == 0
    policy = fit_capacity_policy(read_predictions(files / "own.npz"), capacity=0.2, quantity="energy")
    with pytest.raises(UserError, match=r"these predictions have no column 'score\.energy'"):
        apply_policy(policy, read_predictions(files / "new.npz"))


def test_a_positive_class_is_for_screening_alone(files):
    """Who names the positive class expects something of it; a bound on the error and a capacity know none."""
    for goal in (("--max-risk", 0.1), ("--capacity", 0.3), ("--targets", "0.1,0.2")):
        with pytest.raises(UserError, match=f"--positive 0 is for --sensitivity and --specificity; given {goal[0]}"):
            run("fit", files / "cal.npz", *goal, "--positive", 0, "-o", files / "policy.json")
    assert not (files / "policy.json").exists()
    for positive, named in ((("--positive", 0), 0), ((), 1)):
        run("fit", files / "cal.npz", "--sensitivity", 0.6, *positive, "-o", files / "policy.json")
        assert json.loads((files / "policy.json").read_text())["positive"] == named
