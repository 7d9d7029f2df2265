"""Operations on tensors: the plain form of each, its fast form, and the choice between them."""
