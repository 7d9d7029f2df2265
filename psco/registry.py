"""Named factories whose options come from their own signatures.

Methods, backbones and view parts are registered by name. What a recipe may say about one of them
is what its constructor accepts: every parameter with a default is an option, type and default
included, so no schema repeats the signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from psco.errors import InputError, unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """A table of factories, with errors that name the nearest entry.

    Parameters
    ----------
    kind
        What the entries are, for messages: ``"backbone"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._factories: dict[str, Callable[..., T]] = {}
        self._defaults: dict[str, dict[str, Any]] = {}

    def register(self, name: str, factory: Callable[..., T], **defaults: Any) -> None:
        """Add an entry, perhaps with other defaults than its signature has.

        Raises
        ------
        InputError
            If the name is taken.
        """
        if name in self._factories:
            raise InputError(f"{self.kind} {name!r} is already registered")
        self._factories[name], self._defaults[name] = factory, defaults

    def __getitem__(self, name: str) -> Callable[..., T]:
        try:
            return self._factories[name]
        except KeyError:
            raise unknown_name(self.kind, name, self._factories) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._factories))

    def __contains__(self, name: str) -> bool:
        return name in self._factories

    def options(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Check options against the factory's signature and fill in its defaults.

        Raises
        ------
        InputError
            For an unknown option (with the nearest valid one) or a value of the wrong type.
        """
        model = _options_model(self[name])
        given = {**self._defaults.get(name, {}), **given}
        for key in given:
            if key not in model.model_fields:
                raise unknown_name(f"option of {self.kind} {name!r}", key, model.model_fields)
        try:
            return model(**given).model_dump()
        except ValidationError as error:
            raise InputError(f"{self.kind} {name!r}: {first_problem(error)}") from None


def _options_model(factory: Callable[..., Any]) -> type[BaseModel]:
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    fields: Any = {
        name: (hints.get(name, Any), parameter.default)
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return create_model("Options", __config__=ConfigDict(extra="forbid"), **fields)


def first_problem(error: ValidationError) -> str:
    """Say the first complaint of a pydantic error in one line: where, what, and the value."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    text = problem["msg"].removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    if problem["type"] == "value_error":
        return f"{where}: {text}" if where else text
    if problem["type"] == "missing":
        return f"{where} is missing"
    return f"{where}: {text}, not {problem['input']!r}"
