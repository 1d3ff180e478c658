"""What referral by uncertainty brings over referral at random, in one number.

The area under the referral curve is the mean, over the fractions 1/n, 2/n, … 1 retained, of the accuracy of the kept
(:func:`dubio.metrics.selective.au_arc`). Referral at random keeps a random part, whose expected accuracy is that of all
rows at every fraction, so that its area is the accuracy a::

    referral_gain = mean_{k=1..n} accuracy(k) − a

It is 0 for an uncertainty that says nothing, and negative for one that refers what is right.
"""

from __future__ import annotations

from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import Metric
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import needs_with
from dubio.metrics.selective import au_arc


def referral_gain(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Area under the referral curve minus that of random referral."""
    known = labelled(predictions, "referral_gain")
    return au_arc(known, quantity=quantity) - float(correct(known).mean())


@metric("referral_gain")
def referral_gain_metric(*, quantity: str = "confidence") -> Metric:
    """Mean accuracy of the kept over all fractions, above that of referral at random."""
    return Metric(
        written("referral_gain", quantity=(quantity, "confidence")),
        "higher",
        lambda p: referral_gain(p, quantity=quantity),
        needs=needs_with(quantity, "labels"),
        comparable=False,
        why_not="It is measured from each model's own accuracy, and a worse model has more to gain; au_arc ranks.",
        summary="Area under the referral curve above random referral.",
    )
