"""Classification rules by name. A new one is a file here and a line below."""

from __future__ import annotations

from psco.registry import Registry
from psco.rules.prototype import ClassMean, Prototype
from psco.rules.rule import Heads, Points, Rule

RULES: Registry[Rule] = Registry("rule")
RULES.register("prototype", Prototype)
RULES.register("class-mean", ClassMean)

__all__ = ["RULES", "Heads", "Points", "Rule"]
