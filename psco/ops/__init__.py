"""Operations on tensors: the plain form of each, its fast form, and the choice between them."""

from psco.ops import forks as forks
