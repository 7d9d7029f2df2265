"""Classification rules by name. A new rule is a file here and a line below."""

from __future__ import annotations

from psco.evaluation.rules.finetune import FromScratch, MamlSteps
from psco.evaluation.rules.gmvae import SemiSupervisedEM
from psco.evaluation.rules.linear import LinearProbe
from psco.evaluation.rules.nearest_mean import ClassMean, NearestMean
from psco.evaluation.rules.neighbours import Neighbours
from psco.evaluation.rules.prototype import Adapt, Prototype
from psco.evaluation.rules.readout import ReadOut
from psco.evaluation.rules.regression import Logistic, Ridge
from psco.evaluation.rules.rule import (
    Embeddings,
    Heads,
    Rule,
    SupportSet,
    fit_rule,
    join_embeddings,
)
from psco.evaluation.rules.svebm import SymbolPrior
from psco.evaluation.rules.transductive import SoftSinkhorn
from psco.registry import Registry

RULES: Registry[type[Rule]] = Registry("rule", plugins="psco.rules")
RULES.register("prototype")(Prototype)
RULES.register("class-mean")(ClassMean)
RULES.register("euclidean")(NearestMean)
RULES.register("knn")(Neighbours)
RULES.register("linear")(LinearProbe)
RULES.register("ridge")(Ridge)
RULES.register("logistic")(Logistic)
RULES.register("readout")(ReadOut)
RULES.register("adapt")(Adapt)
RULES.register("transductive")(SoftSinkhorn)
RULES.register("maml")(MamlSteps)
RULES.register("scratch")(FromScratch)
RULES.register("gmvae")(SemiSupervisedEM)
RULES.register("svebm")(SymbolPrior)

__all__ = ["RULES", "Embeddings", "Heads", "Rule", "SupportSet", "fit_rule", "join_embeddings"]
