"""Dataclasses as payloads: a codec derived from the annotations of a class's fields.

An instance is a JSON object. Fields may be text, numbers, truth values, None, enums (by value), bytes (as
base64), lists, sequences, tuples, sets, mappings with text as keys, unions, and dataclasses of the same kind.
A type that JSON data cannot tell apart is refused when the codec is made, not when a message arrives.

Compatible  an absent field gets its default, and an unknown field is ignored, so that a class may get new
            fields while nodes of both versions run.
"""

import base64
import contextlib
import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from ..core.errors import LocalProtocolError

PLAIN: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (float, int),
    bool: (bool,),
    type(None): (type(None),),
}
LISTS = {list: list, set: set, frozenset: frozenset, Sequence: list}
MAPPINGS = (dict, Mapping)


class Model:
    """The codec of one dataclass."""

    def __init__(self, model: type) -> None:
        _check(model, model.__name__, set())
        self._model = model

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, self._model):
            raise TypeError(f"{type(value).__name__} is no {self._model.__name__}")
        plain = _plain(value)
        _read(self._model, plain, self._model.__name__)  # the receiver does the same
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode(self, payload: bytes) -> Any:
        return _read(self._model, json.loads(payload), self._model.__name__)


def _fields(model: type) -> dict[str, Any]:
    hints = typing.get_type_hints(model)
    return {field.name: hints[field.name] for field in dataclasses.fields(model) if field.init}


def _check(hint: Any, where: str, seen: set[Any]) -> None:
    """Refuse an annotation that `_read` cannot follow."""
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any or hint in PLAIN or hint is bytes or hint in seen:
        return
    if isinstance(hint, type) and issubclass(hint, Enum):
        return
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        seen.add(hint)
        for name, inner in _fields(hint).items():
            _check(inner, f"{where}.{name}", seen)
        return
    is_union = origin in (typing.Union, types.UnionType)
    if is_union and sum(map(dataclasses.is_dataclass, arguments)) > 1:
        raise LocalProtocolError(f"{where}: which of several dataclasses it is cannot be told from JSON")
    if origin in MAPPINGS and arguments and arguments[0] is not str:
        raise LocalProtocolError(f"{where}: JSON has text as keys, not {arguments[0]}")
    if not is_union and origin not in (*LISTS, *MAPPINGS, tuple):
        raise LocalProtocolError(f"{where}: JSON has nothing for {hint}; give a codec of your own")
    for inner in arguments:
        if inner is not Ellipsis:
            _check(inner, where, seen)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    return value


def _read(hint: Any, data: Any, where: str) -> Any:
    """The value of JSON data according to an annotation; ValueError says where the data does not fit it."""
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any:
        return data
    if hint in PLAIN:
        if type(data) not in PLAIN[hint]:
            raise ValueError(f"{where} is {hint.__name__}, and not {type(data).__name__}")
        return float(data) if hint is float else data
    if hint is bytes:
        return base64.b64decode(_shape(data, str, where), validate=True)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        given, hints = _shape(data, dict, where), _fields(hint)
        found = {name: _read(hints[name], given[name], f"{where}.{name}") for name in hints if name in given}
        try:
            return hint(**found)
        except TypeError as error:  # a field without a default is missing
            raise ValueError(f"{where}: {error}") from error
    if origin in (typing.Union, types.UnionType):
        # Try the data's own type first: an int stays an int where a float is allowed too.
        for choice in sorted(arguments, key=lambda each: type(data) is not each):
            with contextlib.suppress(ValueError):
                return _read(choice, data, where)
        raise ValueError(f"{where} is none of {', '.join(map(str, arguments))}")
    if origin in MAPPINGS:
        inner = arguments[1] if arguments else Any
        given = _shape(data, dict, where)
        return {key: _read(inner, each, f"{where}[{key!r}]") for key, each in given.items()}
    items: list[Any] = _shape(data, list, where)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(items) != len(arguments):
            raise ValueError(f"{where} has {len(arguments)} items, and not {len(items)}")
        return tuple(_read(each, item, where) for each, item in zip(arguments, items, strict=True))
    inner = arguments[0] if arguments else Any
    return LISTS.get(origin, tuple)(_read(inner, item, f"{where}[{i}]") for i, item in enumerate(items))


def _shape(data: Any, kind: type, where: str) -> Any:
    if not isinstance(data, kind):
        raise ValueError(f"{where} is no {kind.__name__} but {type(data).__name__}")
    return data
