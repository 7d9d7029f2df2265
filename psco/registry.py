"""Named classes and factories whose options come from their own signatures.

Methods, backbones, view parts and rules are registered by name. What a recipe may say about one of
them is what its constructor accepts: every parameter with a default is an option, type and default
included, so no schema repeats the signature.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from psco.errors import InputError, first_line, quoted, unknown_name

Entry = TypeVar("Entry", bound=Callable[..., Any])
# Options come from files too, and a file must neither overflow a number nor take days.
_MAX_WHOLE = 2**31 - 1
_MAX_REPEATS = 10_000
_REPEATS = ("steps", "epochs", "rounds", "iterations")


class Registry(Generic[Entry]):
    """A table of classes or factories by name.

    Parameters
    ----------
    kind
        What the entries are, for messages: ``"backbone"``.
    plugins
        Entry-point group by which other packages add entries, such as ``"psco.methods"``. They are
        loaded at the first look-up.
    """

    def __init__(self, kind: str, plugins: str | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}
        self._defaults: dict[str, dict[str, Any]] = {}
        self._unloaded = plugins

    def register(self, name: str, **defaults: Any) -> Callable[[Entry], Entry]:
        """Return a decorator that adds a class or factory under a name.

        Parameters
        ----------
        name
            What recipes and the command line call it.
        defaults
            Options whose default differs from the one in the signature.

        Raises
        ------
        InputError
            If the name is taken.
        """

        def add(entry: Entry) -> Entry:
            if name in self._entries:
                raise InputError(f"{self.kind} {name!r} is already registered")
            self._entries[name], self._defaults[name] = entry, defaults
            return entry

        return add

    def __getitem__(self, name: str) -> Entry:
        self._load_plugins()
        try:
            return self._entries[name]
        except KeyError:
            raise unknown_name(self.kind, name, self._entries) from None

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(sorted(self._entries))

    def __contains__(self, name: str) -> bool:
        self._load_plugins()
        return name in self._entries

    def options(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return all options of an entry: those given, checked, and the defaults of the others.

        Raises
        ------
        InputError
            For an unknown option (with the nearest valid one), a value of the wrong type, or a
            number that is too large.
        """
        model = _options_model(self[name])
        given = {**self._defaults.get(name, {}), **given}
        for key in given:
            if key not in model.model_fields:
                raise unknown_name(f"option of {self.kind} {name!r}", str(key), model.model_fields)
        try:
            options = model(**given).model_dump()
        except ValidationError as error:
            raise InputError(f"{self.kind} {name!r}: {first_problem(error)}") from None
        for key, value in options.items():
            most = _MAX_REPEATS if key.endswith(_REPEATS) else _MAX_WHOLE
            if isinstance(value, int) and abs(value) > most:
                raise InputError(
                    f"{self.kind} {name!r}: {key} must be at most {most:,}, got {quoted(value)}"
                )
        return options

    def _load_plugins(self) -> None:
        group, self._unloaded = self._unloaded, None
        for point in entry_points(group=group) if group else ():
            try:
                entry = point.load()
            except Exception as error:  # whatever another package does when it is imported
                warnings.warn(
                    f"{self.kind} {point.name!r} ({point.value}) cannot be loaded: "
                    f"{first_line(error)}",
                    stacklevel=3,
                )
                continue
            if point.name not in self._entries:  # the module may have used the decorator itself
                self.register(point.name)(entry)


def _options_model(entry: Callable[..., Any]) -> type[BaseModel]:
    fields: Any = {}
    for function in _signatures(entry):
        hints = get_type_hints(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                fields.setdefault(name, (hints.get(name, Any), parameter.default))
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    return create_model("Options", __config__=config, **fields)


def _signatures(entry: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the functions that receive the options.

    A constructor that ends in ``**options`` passes them on to that of its base class.
    """
    if not inspect.isclass(entry):
        yield entry
        return
    for cls in entry.__mro__:
        if "__init__" in vars(cls):
            constructor: Callable[..., Any] = vars(cls)["__init__"]
            yield constructor
            kinds = [p.kind for p in inspect.signature(constructor).parameters.values()]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                return


def first_problem(error: ValidationError) -> str:
    """Return the first complaint of a pydantic error in one line: where, what, and the value."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    text = problem["msg"].removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    if problem["type"] == "value_error":
        return f"{where}: {text}" if where else text
    if problem["type"] == "missing":
        return f"{where} is missing"
    return f"{where}: {text}, got {quoted(problem['input'])}"
