"""Which options a recipe for one method passes on to another method.

Options of the same name mean the same in all methods, unless listed here.
"""

from __future__ import annotations

from typing import Any

from psco.methods import METHODS

# Method -> option -> what it means there; options correspond if their meanings are equal.
# A variant of a method comes after it.
_MEANINGS = {
    "psco": {
        "temperature": "temperature of PsCo's loss, Eq. (5)",
        "moco_temperature": "temperature of MoCo's loss",
        "shots": "pseudo-positives per query",
    },
    "psco-byol": {"auxiliary": "always BYOL"},
    "moco": {"temperature": "temperature of MoCo's loss"},
    "simclr": {"temperature": "temperature of SimCLR's loss"},
    "swav": {
        "temperature": "temperature of SwAV's loss",
        "queue_size": "embeddings added to the assignment; MoCo's queue holds negatives",
    },
}


def carried_options(options: dict[str, Any], own: Any, other: Any) -> dict[str, Any]:
    """Return the options of method ``own`` that method ``other`` also has, by its names.

    Parameters
    ----------
    options
        Options that a recipe sets for ``own``; ``name`` is ignored.
    own, other
        Names of methods. For one that does not exist nothing is carried over.
    """
    if not all(isinstance(name, str) and name in METHODS for name in (own, other)):
        return {}
    names = {_meaning(other, option): option for option in METHODS.options(other, {})}
    return {
        names[_meaning(own, option)]: value
        for option, value in options.items()
        if _meaning(own, option) in names
    }


def _meaning(method: str, option: str) -> str:
    """Return what an option means; a variant, a subclass, has the meanings of its origin."""
    meaning = option
    for name, meanings in _MEANINGS.items():
        if _is_variant(method, name):
            meaning = meanings.get(option, meaning)
    return meaning


def _is_variant(method: str, origin: str) -> bool:
    return issubclass(METHODS[method], METHODS[origin])
