"""Classification rules by name. A new one is a file here and a line below."""

from __future__ import annotations

from psco.registry import Registry
from psco.rules.adapt import Adapt
from psco.rules.finetune import FromScratch, MamlSteps
from psco.rules.linear import LinearProbe
from psco.rules.neighbours import Neighbours
from psco.rules.prototype import ClassMean, Euclidean, Prototype
from psco.rules.regression import Logistic, Ridge
from psco.rules.rule import Heads, Points, Rule, join_points
from psco.rules.transductive import SoftSinkhorn

RULES: Registry[Rule] = Registry("rule")
RULES.register("prototype", Prototype)
RULES.register("class-mean", ClassMean)
RULES.register("euclidean", Euclidean)
RULES.register("knn", Neighbours)
RULES.register("linear", LinearProbe)
RULES.register("ridge", Ridge)
RULES.register("logistic", Logistic)
RULES.register("adapt", Adapt)
RULES.register("transductive", SoftSinkhorn)
RULES.register("maml", MamlSteps)
RULES.register("scratch", FromScratch)

__all__ = ["RULES", "Heads", "Points", "Rule", "join_points"]
