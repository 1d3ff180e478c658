"""The sheet of a policy: what it says for every kind, what it shows, and what it never says."""

from __future__ import annotations

import base64
import errno
import hashlib
import html
import os
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import beta

import dubio
from dubio.core.errors import MissingExtra, UserError
from dubio.core.predictions import Predictions
from dubio.reporting import sheet as sheet_module
from dubio.reporting.section import Definitions, Figure, Table, Text
from dubio.reporting.sheet import PolicySheet, policy_sheet
from tests.referral.helpers import of_doubts, without_labels
from tests.reporting.helpers import EVIL, Outline


def rows(count: int, seed: int, *, kind: str | None = "cal", size: int = 0, **changes: Any) -> Predictions:
    """Binary rows whose error rate is half of their doubt, at four sites; in groups where their size is positive."""
    rng = np.random.default_rng(seed)
    doubts, truth = rng.random(count) / 2, rng.integers(0, 2, count)
    group = np.arange(count) // size if size else None
    predictions = of_doubts(doubts, rng.random(count) < doubts / 2, group, truth, kind)
    sites = np.array(["Aarhus", "Basel", "Cork", "Delft"])[rng.integers(0, 4, count)]
    return replace(predictions, **{"classes": ("healthy", "referable"), "columns": {"site": sites}, **changes})


CAL, NEW = rows(900, 0), rows(700, 1, kind="id")
RISK = dubio.fit_risk_policy(CAL, max_risk=0.1)
CAPACITY = dubio.fit_capacity_policy(CAL, capacity=0.2)
SCREENING = dubio.fit_screening_policy(rows(2500, 2), sensitivity=0.9, positive=0)
GROUPS = dubio.fit_risk_policy(rows(3000, 2, size=3), max_risk=0.15)
GRID = dubio.fit_risk_policies(dict.fromkeys("ab", rows(2000, 0)), targets=(0.05, 0.1, 0.2))
VOID = dubio.fit_risk_policy(rows(900, 2, kind="val"), max_risk=0.1, allow_selected=True)


def words(sheet: PolicySheet, name: str = "") -> str:
    """All texts of a sheet, or of one of its parts, on one line."""
    texts = []
    for own in sheet.parts:
        for block in own.blocks if name in ("", own.name) else ():
            if isinstance(block, Definitions):
                texts += [f"{term}: {text}" for term, text in block.rows]
            elif isinstance(block, Text):
                texts += [block.text] if isinstance(block.text, str) else block.text
            elif isinstance(block, Table):
                texts += [" | ".join([row.title, *(cell.plain for cell in row.cells)]) for row in block.rows]
            elif isinstance(block, Figure):
                texts += [block.title, block.caption, block.reading]
    return "\n".join([*texts, *(own.title for own in sheet.parts if name in ("", own.name))]).replace("\xa0", " ")


def rate_rows(sheet: PolicySheet) -> dict[str, list[str]]:
    (table,) = [b for own in sheet.parts if own.name == "observed" for b in own.blocks if isinstance(b, Table)]
    return {row.title: [cell.text for cell in row.cells] for row in table.rows}


def clopper_pearson(count: int, total: int) -> str:
    low = beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"[{low:.4f}, {high:.4f}]"


def test_a_sheet_states_rule_guarantee_confidence_units_and_data() -> None:
    sheet = policy_sheet(RISK)
    assert sheet.title == "Referral policy: error among the retained below 0.1"
    assert RISK.rule.startswith("retained when the answer has at least")
    assert "Retained: When the system gives its answer at least" in words(sheet, "rule")
    assert re.search(r"at least \d+\.\d+ %", words(sheet, "rule"))
    assert f"Guarantee: {RISK.guarantee}" in words(sheet, "guarantee")
    assert "at least 95 % give a policy that keeps the guarantee" in words(sheet, "guarantee")
    assert "Over: Rows, taken as independent" in words(sheet, "guarantee")
    assert "900 rows, a calibration split" in words(sheet, "guarantee")
    assert "not a validation" in words(sheet, "observed")
    assert {own.name for own in sheet.parts} == {"rule", "guarantee", "limits", "observed"}
    assert sheet.fingerprint == hashlib.sha256(RISK.to_json().encode()).hexdigest()


def test_observed_rates_are_counts_with_clopper_pearson_intervals() -> None:
    doubts = 1 - NEW.probs.max(axis=1)
    retained, wrong = doubts <= RISK.threshold, NEW.probs.argmax(axis=1) != NEW.labels
    shown = rate_rows(policy_sheet(RISK, NEW))

    def expected(flags: Any, counted: Any) -> list[str]:
        count, total = int((flags & counted).sum()), int(counted.sum())
        return [f"{count / total:.4f}", clopper_pearson(count, total), f"{count:,} of {total:,} rows"]

    everything, positive = np.ones(700, dtype=bool), NEW.labels == 1
    assert shown["Share referred"][:3] == expected(~retained, everything)
    assert shown["Error among the retained"][:3] == expected(wrong, retained)
    name = "Sensitivity among the retained (positive: class 'referable')"
    assert shown[name][:3] == expected(~wrong, retained & positive)
    assert shown["Specificity among the retained"][:3] == expected(~wrong, retained & ~positive)
    assert shown["Error if nothing were referred"][:3] == expected(wrong, everything)


def test_a_screening_policy_is_observed_for_its_own_positive_class() -> None:
    assert SCREENING.positive == 0
    doubts = 1 - NEW.probs.max(axis=1)
    counted = (doubts <= SCREENING.threshold) & (NEW.labels == 0)
    found = int((NEW.probs.argmax(axis=1) == 0)[counted].sum())
    shown = rate_rows(policy_sheet(SCREENING, NEW))["Sensitivity among the retained"]
    assert shown[:4] == [
        f"{found / counted.sum():.4f}", clopper_pearson(found, counted.sum()), f"{found} of {counted.sum()} rows",
            "above 0.9",
    ]  # fmt: skip
    referred = int((NEW.labels[doubts > SCREENING.threshold] == 0).sum())
    assert f"not counted as missed: {referred} of {(NEW.labels == 0).sum()}." in words(policy_sheet(SCREENING, NEW))


@pytest.mark.parametrize(
    ("wrong", "outcome"), [(np.zeros(400, bool), "met"), (np.arange(400) % 2 == 0, "violated"),
                           (np.arange(400) % 11 == 0, "undecided")],
)  # fmt: skip
def test_new_rows_decide_about_the_guarantee(wrong: Any, outcome: str) -> None:
    new = replace(of_doubts(np.full(400, RISK.threshold / 2), wrong, kind="id"), classes=CAL.classes)
    assert rate_rows(policy_sheet(RISK, new))["Error among the retained"][3:] == ["below 0.1", outcome]


@pytest.mark.parametrize("policy", [RISK, CAPACITY])
def test_the_calibration_set_is_marked_and_has_no_outcome(policy: dubio.Policy) -> None:
    shuffled = CAL.take(np.random.default_rng(3).permutation(900))
    flagged = np.append(np.zeros(900, bool), np.ones(50, bool))
    with_ood = replace(dubio.join([CAL, rows(50, 9)]), ood=flagged)
    for predictions in (CAL, shuffled, with_ood):
        sheet = policy_sheet(policy, predictions, by=("site",))
        text = words(sheet)
        assert "Observed on the calibration set" in text
        assert "The threshold was chosen on these rows" in text
        assert "on the calibration set, not a validation" in words(sheet, "curve")
        assert all(len(cells) == 3 for cells in rate_rows(sheet).values())
        assert not re.search(r"\b(met|violated|undecided)\b", words(sheet, "observed"))
        assert rate_rows(sheet)["Share referred"][2].endswith(" of 900 rows")
        assert "not a validation" in words(sheet, "subgroups")
    assert "chosen on these rows" not in words(policy_sheet(policy, CAL.take(np.arange(899))))


def test_what_is_not_guaranteed_follows_from_the_kind() -> None:
    risk, capacity, screening = (words(policy_sheet(own), "limits") for own in (RISK, CAPACITY, SCREENING))
    assert "Up to 10 of 100 retained answers may be wrong" in risk
    assert "Sensitivity and specificity are not bounded" in risk
    assert "For up to 5 % of calibration sets the guarantee fails" in risk
    assert "Nothing is guaranteed about errors" in capacity
    assert "of calibration sets the guarantee fails" not in capacity
    assert f"up to {CAPACITY.evidence['upper_referral']:.4g} in the long run" in capacity
    assert "Referred positives do not count as missed" in screening
    assert "Specificity was not a target" in screening
    for text in (risk, capacity, screening):
        assert "Under distribution shift, at other sites" in text
        assert "in one site, subgroup or class it may be violated" in text
        assert "No groups were named" in text


def test_groups_are_the_units_and_their_mean_is_named() -> None:
    sheet = policy_sheet(GROUPS, rows(600, 8, size=3, kind="id"), by=("site",))
    assert "Groups, taken as independent" in words(sheet, "guarantee")
    assert "3,000 rows in 1,000 groups" in words(sheet, "guarantee")
    assert "200 groups chose the thresholds, 800 tested them" in words(sheet, "guarantee")
    assert "No groups were named" not in words(sheet, "limits")
    assert "averaged over groups" in words(sheet, "limits")
    assert rate_rows(sheet)["Share referred"][2] == "200 groups"
    assert "Hoeffding–Bentkus" in words(sheet, "observed")


def test_a_policy_of_a_grid_says_how_the_level_was_shared() -> None:
    sheet = policy_sheet(GRID.systems["b"][1].policy)  # type: ignore[arg-type]
    text = words(sheet, "guarantee")
    assert "3 targets × 2 systems" in text
    assert text.count("hold at once with 0.95 confidence") == 1
    assert f"1 − 0.95 is shared equally: each alone has {1 - 0.05 / 6:.4g}." in text
    assert "System: b; 2 classes (healthy, referable)" in words(sheet, "rule")
    assert "Choose only among policies that were fitted together" in words(sheet, "limits")


def test_a_void_guarantee_is_said_and_never_met() -> None:
    sheet = policy_sheet(VOID, NEW)
    assert sheet.title.startswith("Referral policy without a guarantee")
    assert "No guarantee: fitted by force on a 'val' split" in words(sheet, "guarantee")
    assert "Confidence" not in words(sheet, "guarantee")
    assert all(len(cells) == 3 for cells in rate_rows(sheet).values())
    assert not re.search(r"\b(undecided|guaranteed bound)\b", words(sheet))


def test_rows_without_labels_show_decisions_alone() -> None:
    sheet = policy_sheet(RISK, without_labels(NEW))
    assert list(rate_rows(sheet)) == ["Share referred"]
    assert "Without labels the guarantee cannot be checked." in words(sheet)
    assert "curve" not in {own.name for own in sheet.parts}
    capacity = policy_sheet(CAPACITY, without_labels(NEW))
    assert rate_rows(capacity)["Share referred"][3] == f"at most {CAPACITY.evidence['upper_referral']:.4g}"
    assert "cannot be checked" not in words(capacity)


@pytest.mark.parametrize("kind", ["train", "val"])
def test_rows_that_training_or_selection_has_used_are_no_check(kind: str) -> None:
    sheet = policy_sheet(RISK, replace(NEW, kind=kind))
    assert "Training or selection has used these rows" in words(sheet)
    assert "new rows" not in words(sheet, "observed") + words(sheet, "curve")
    assert all(len(cells) == 3 for cells in rate_rows(sheet).values())


def test_many_subgroups_stand_in_two_tables_that_have_every_row_once() -> None:
    names = [f"site {number}" for number in range(9)]
    many = replace(NEW, columns={"site": np.array(names)[np.arange(700) % 9]})
    (own,) = [own for own in policy_sheet(RISK, many, by=("site",)).parts if own.name == "subgroups"]
    tables = [block for block in own.blocks if isinstance(block, Table)]
    assert [len(table.rows) for table in tables] == [5, 4]
    assert sorted(row.title for table in tables for row in table.rows) == names
    counts = [int(row.cells[0].text) for table in tables for row in table.rows]
    assert sum(counts) == 700


def test_notes_say_whether_they_are_about_calibration_or_new_rows() -> None:
    policy = dubio.fit_risk_policy(rows(900, 0, kind=None), max_risk=0.1)
    noted = replace(NEW, notes=("Column age is not used.",))
    text = words(policy_sheet(policy, noted), "notes")
    assert "Calibration set: dubio cannot know whether training or selection has used these rows" in text
    assert "Observed rows: Column age is not used." in text
    assert "notes" not in {own.name for own in policy_sheet(RISK, NEW).parts}


def test_shifted_rows_are_warned_of() -> None:
    far = replace(of_doubts(np.full(300, 0.45), np.zeros(300), kind="shift"), classes=CAL.classes)
    text = words(policy_sheet(RISK, far), "observed")
    assert "The uncertainties have shifted since calibration" in text
    assert "No row is retained: the guarantee cannot be checked." in text


def test_the_curve_is_the_risk_of_the_most_certain_rows_and_ends_at_all_rows() -> None:
    (figure,) = [b for own in policy_sheet(RISK, NEW).parts for b in own.blocks if isinstance(b, Figure)]
    spec = figure.chart().to_dict()
    curve, *others = (spec["datasets"][layer["data"]["name"]] for layer in spec["layer"][1:])
    wrong = (NEW.probs.argmax(axis=1) != NEW.labels)[np.argsort(1 - NEW.probs.max(axis=1), kind="stable")]
    for row in curve:
        count = round(row["x"] * 700)
        assert row["y"] == pytest.approx(wrong[:count].mean(), abs=1e-5)
    assert curve[-1]["x"] == 1
    retained = int((1 - NEW.probs.max(axis=1) <= RISK.threshold).sum())
    point = {"x": pytest.approx(retained / 700, abs=1e-5), "y": pytest.approx(wrong[:retained].mean(), abs=1e-5)}
    assert [list(rows) for rows in others] == [[{"y": 0.1}], [point], [point]]
    assert f"retains {retained / 7:.1f}\xa0%" in figure.reading


@pytest.mark.parametrize("sheet", [policy_sheet(RISK, NEW, by=("site",)), policy_sheet(VOID)], ids=["new", "alone"])
def test_every_per_cent_of_a_sheet_stands_behind_a_space(sheet: PolicySheet) -> None:
    assert re.findall(r"\S*\d%", words(sheet)) == []
    assert re.search(r"\d %", words(sheet, "observed"))


def test_the_page_has_a_picture_and_no_script() -> None:
    html = policy_sheet(RISK, NEW, by=("site",)).to_html()
    outline = Outline(html)
    assert "script" not in outline.tags
    assert "script-src &#39;none&#39;" in html
    (source,) = [value for tag, name, value in outline.attributes if (tag, name) == ("img", "src")]
    drawing = base64.b64decode(source.removeprefix("data:image/svg+xml;base64,"))
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", html)


def test_hostile_names_are_text() -> None:
    long = "z" * 10_000
    sites = np.array([EVIL, long, "\u202eevil", "{{7*7}}"])[np.arange(900) % 4]
    hostile = replace(CAL, classes=(EVIL, long), columns={EVIL: sites})
    grid = dubio.fit_risk_policies({EVIL: hostile}, targets=(0.1, 0.2))
    outline = Outline(policy_sheet(grid.policies[0], hostile, by=(EVIL,)).to_html())
    assert set(outline.tags).isdisjoint({"script", "iframe", "a"})
    assert outline.tags.count("img") == 1
    assert all(not name.startswith("on") for _, name, _ in outline.attributes)
    text = " ".join(outline.words)
    assert EVIL[:40] in text
    assert "{{7*7}}" in text
    assert long not in text
    screening = dubio.fit_screening_policy(hostile, specificity=0.8)
    assert "script" not in Outline(policy_sheet(screening, hostile).to_html()).tags


def test_everything_retained_refers_no_row() -> None:
    easy = dubio.fit_risk_policy(of_doubts(np.full(300, 0.2), np.zeros(300)), max_risk=0.2)
    text = words(policy_sheet(replace(easy, threshold=float("inf"))), "rule")
    assert "Retained: Every row is retained" in text
    assert "Referred: No row." in text
    assert "inf" not in text.replace("infinite", "")


def test_other_targets_have_sheets() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (1, 400, 3)).astype(np.float32)
    several = Predictions(logits, (logits[0] > 0).astype(np.int64), target="multilabel", kind="cal")
    text = words(policy_sheet(dubio.fit_risk_policy(several, max_risk=0.1), several))
    assert "A row is wrong unless all its labels are right." in text
    assert "Sensitivity" not in text
    grades = Predictions(logits, logits[0].argmax(axis=1), target="ordinal", kind="cal")
    policy = dubio.fit_capacity_policy(grades, capacity=0.2)
    assert "Sensitivity among the retained (positive:" in words(policy_sheet(policy, grades))


def test_mistakes_are_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="by needs predictions"):
        policy_sheet(RISK, by=("site",))
    with pytest.raises(UserError, match=r"sheet\.pdf.*must end in \.html"):
        policy_sheet(RISK).write(tmp_path / "sheet.pdf")
    with pytest.raises(UserError, match="class 0 is 'a'"):
        policy_sheet(RISK, replace(NEW, classes=("a", "b")))
    monkeypatch.setattr("dubio.reporting.page.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"sheet of a policy.*report"):
        policy_sheet(RISK).write(tmp_path / "sheet.html")
    assert list(tmp_path.iterdir()) == []


def test_a_sheet_is_written_as_a_whole_or_not_at_all(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = policy_sheet(RISK, CAL).write(tmp_path / "sheet.html")
    before = path.read_bytes()
    assert before.startswith(b"<!doctype html>")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"sheet\.html"):
        policy_sheet(CAPACITY).write(path)
    assert path.read_bytes() == before
    assert [own.name for own in tmp_path.iterdir()] == ["sheet.html"]


def test_the_public_names_are_those_of_the_module() -> None:
    assert dubio.policy_sheet is sheet_module.policy_sheet
    assert dubio.PolicySheet is PolicySheet


def test_a_notebook_shows_the_sheet_in_a_frame_without_scripts() -> None:
    sheet = policy_sheet(RISK, NEW)
    frame = re.fullmatch(r'<iframe title="([^"]*)" sandbox="" [^>]*srcdoc="([^"]*)"></iframe>', sheet._repr_html_())
    assert frame is not None
    assert html.unescape(frame[2]) == sheet.to_html()
    assert len(repr(sheet)) < 300
