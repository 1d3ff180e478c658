"""Several last layers on one network: the least that an ensemble can be.

M heads with their own first weights share all features: head k has the loss of its own logits, and the network the mean
over heads. It adds (M − 1)·(width + 1)·K weights to a softmax head and next to no time. Heads of convex losses on the
same features tend towards each other, so that members differ mostly where training has left the first weights alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dubio.core.specs import part
from dubio.core.validate import Positive
from dubio.networks.members import MemberEdit, RepeatFeatures, check_unchanged, own_heads, set_members
from dubio.networks.network import Model


@part("multi_head")
@dataclass(frozen=True)
class MultiHead(MemberEdit):
    """One last layer for each member.

    Attributes:
        size: M, the number of heads.
    """

    redraws: ClassVar[str] = "the last layer"

    size: Positive = 4

    def apply(self, model: Model) -> None:
        """Give each member a head.

        Raises:
            UserError: When the head has no dense layer.
        """
        check_unchanged("multi_head", model)
        own_heads("multi_head", model, self.size, model.network.width)
        model.network.stages.append(RepeatFeatures(self.size))
        set_members(model, self.size)
