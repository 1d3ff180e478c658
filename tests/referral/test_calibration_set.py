"""What a policy may be fitted on, whatever its kind."""

from dataclasses import replace

import numpy as np
import pytest

from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.referral import (
    apply_policy,
    fit_capacity_policy,
    fit_risk_policy,
    fit_screening_policy,
)
from dubio.referral.calibration_set import calibration_rows
from dubio.referral.units import rounded_uncertainty
from tests.referral.helpers import FITS, easy, shuffled, without_labels


@pytest.mark.parametrize("kind", FITS)
def test_order_of_rows_does_not_matter(kind):
    rng = np.random.default_rng(3)
    for predictions in (easy(), easy(group=rng.integers(0, 150, 400).astype(str))):
        first, second = FITS[kind](predictions), FITS[kind](shuffled(predictions))
        assert first.threshold == second.threshold
        assert first.evidence == pytest.approx(second.evidence)


@pytest.mark.parametrize("kind", FITS)
def test_what_selection_has_seen_is_refused_unless_forced(kind):
    fit = FITS[kind]
    for split in ("train", "val"):
        with pytest.raises(UserError, match=f"this one is '{split}'.*--force"):
            fit(easy(kind=split))
        forced = fit(easy(kind=split), allow_selected=True)
        assert forced.guarantee.startswith(f"No guarantee: fitted by force on a '{split}' split")
        assert forced.guarantee in apply_policy(forced, easy(seed=1)).warnings
    assert fit(easy(kind="cal")).notes == ()
    assert "cannot know" in fit(easy(kind=None)).notes[0]
    assert "no longer a test set" in fit(easy(kind="id")).notes[0]


def test_mistakes_are_named():
    for bad in (0, 1, -0.1, float("nan")):
        with pytest.raises(UserError, match=r"max_risk .* must lie between 0 and 1"):
            fit_risk_policy(easy(), max_risk=bad)
        with pytest.raises(UserError, match=r"confidence .* must lie between 0 and 1"):
            fit_capacity_policy(easy(), capacity=0.2, confidence=bad)
    with pytest.raises(UnknownName, match="Did you mean 'predictive_entropy'"):
        fit_risk_policy(easy(), max_risk=0.1, quantity="predictive_entropie")
    with pytest.raises(UserError, match="'random' is a control"):
        fit_risk_policy(easy(), max_risk=0.1, quantity="random")
    with pytest.raises(UserError, match="mutual_information cannot be computed"):
        fit_risk_policy(easy(), max_risk=0.1, quantity="mutual_information")
    with pytest.raises(UserError, match="every row is unlabelled"):
        fit_risk_policy(without_labels(easy()), max_risk=0.1)
    with pytest.raises(UserError, match="at least two independent"):
        fit_risk_policy(easy(4, group=np.array(["a"] * 4)), max_risk=0.1)
    with pytest.raises(UserError, match="give sensitivity, specificity or both"):
        fit_screening_policy(easy())
    with pytest.raises(UnknownName, match="positive class 'ill'"):
        fit_screening_policy(easy(classes=("well", "sick")), specificity=0.5, positive="ill")
    with pytest.raises(UserError, match="no row of the class"):
        fit_screening_policy(easy(), sensitivity=0.5, positive=1)
    three = Predictions(np.zeros((1, 5, 3), dtype=np.float32), np.zeros(5, dtype=np.int64))
    with pytest.raises(UserError, match="needs two classes; these predictions are multiclass with 3"):
        fit_screening_policy(three, sensitivity=0.5)


def test_rows_left_out_are_counted_in_singular_and_plural():
    rows = easy(400)
    for count, said in ((1, "1 unlabelled row."), (2, "2 unlabelled rows.")):
        labels = np.where(np.arange(400) < count, -1, rows.labels)
        notes = fit_risk_policy(replace(rows, labels=labels), max_risk=0.4).notes
        assert any(note.startswith(f"Left out: {said}") for note in notes)
    strange = replace(rows, ood=np.arange(400) < 1)
    assert "Left out: 1 row marked out of distribution." in fit_risk_policy(strange, max_risk=0.4).notes


@pytest.mark.parametrize("rows", [4000, 4001])
def test_a_policy_stores_at_most_four_thousand_uncertainties(rows):
    calibration = easy(rows)
    seen = np.array(fit_capacity_policy(calibration, capacity=0.3).seen)
    assert len(seen) == 4000
    assert (np.diff(seen) >= 0).all()
    assert set(seen.tolist()) <= set(rounded_uncertainty(calibration, "confidence").tolist())


@pytest.mark.parametrize("kind", FITS)
def test_a_policy_recognises_its_calibration_set_in_any_order_and_no_other_rows(kind):
    groups = np.random.default_rng(3).integers(0, 150, 400).astype(str)
    for own in (easy(), easy(group=groups)):
        policy = FITS[kind](own)
        assert len(calibration_rows(policy, shuffled(own))) == 400
        for other in (easy(seed=1), own.take(np.arange(399)), easy(seed=1, group=groups)):
            assert calibration_rows(policy, other) is None
    if kind != "capacity":
        assert calibration_rows(FITS[kind](easy()), without_labels(easy())) is None


@pytest.mark.parametrize("kind", FITS)
def test_rows_that_the_policy_was_not_fitted_on_are_left_out_of_its_calibration_set(kind):
    ood = np.arange(400) < 30
    labels = np.where(np.arange(400) < 60, -1, easy().labels)
    own = easy(ood=ood, labels=labels)
    assert len(calibration_rows(FITS[kind](own), own)) == (370 if kind == "capacity" else 340)
    forced = replace(own, kind="val")
    assert calibration_rows(FITS[kind](forced, allow_selected=True), forced) is not None


def test_a_calibration_set_that_selection_has_used_is_recognised_too():
    selected = easy(kind="val")
    policy = FITS["risk"](selected, allow_selected=True)
    rows = calibration_rows(policy, selected)
    assert rows is not None
    assert len(rows) == len(selected)
