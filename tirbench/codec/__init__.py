"""The types of `tirbench.model` as JSON-able data, and back, without loss.

The form follows the declared types: plain where they leave no doubt, tagged where they do.

* A dataclass is an object of its fields; where a position allows several (an `Outcome`, a `Bound`),
  the object says which by `"type"` (`"timed"`, `"tensor_ref"`).
* A tuple is an array, a tuple of named values an object, a frozen set a sorted array.
* An `Expression` is its text where no other text can stand, as in the TOML file.
* A dtype among other texts is `{"type": "dtype", "name": …}`, `omit` is `{"type": "omit"}`, and an
  infinite or undefined number written in a workload is `{"type": "float", "value": "inf"}`. Such a
  number is refused in a field of type `float`: what was measured is finite.

`Source.root`, the project's folder on this machine, is left out and is empty after loading.
"""

from __future__ import annotations

import dataclasses
import math
from enum import Enum, IntEnum
from typing import Any, TypeAlias, TypeVar, cast, overload

from tirbench.codec.declared import (
    LOCAL,
    Choice,
    Fixed,
    Member,
    Named,
    Sequence,
    fields_of,
    is_record,
    members_of,
    records,
    tag_of,
    tagged,
)
from tirbench.errors import TirbenchError
from tirbench.expression import Expression
from tirbench.values import OMIT, Dtype, Omit

T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class CodecError(TirbenchError, ValueError):
    """Data does not have the form of its type; the message names the place and the fault."""


def dump(value: object) -> Json:
    """Turn a value of the model into data that `json.dumps` takes.

    Args:
        value: a dataclass of the model, or anything that can stand in an `Argument` or a `Bound`.

    Raises:
        CodecError: the value holds something that its declared type does not allow: a number that
            is not finite, two values of one name, a foreign object.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Expression):
        return _dump_record(value, type(value).__name__, with_tag=type(value) in tagged())
    return _dump(value, members_of("object"), "value")


@overload
def load(kind: type[T], data: object) -> T: ...
@overload
def load(kind: object, data: object) -> Any: ...
def load(kind: object, data: object) -> Any:
    """Build a value of `kind` from what `dump` returned.

    Args:
        kind: a dataclass of the model, or one of its unions (`model.Outcome`).
        data: parsed JSON.

    Raises:
        CodecError: a field is unknown, missing or of another type; the message begins with its
            place (`Timed.estimate.midmean_us`).
    """
    if isinstance(kind, str):
        text = kind
    elif isinstance(kind, type):
        text = kind.__name__
    else:
        raise TypeError(f"{kind!r} is no type of tirbench.model")
    return _load(data, members_of(text), text if text.isidentifier() else "value")


# --- Value → data ---------------------------------------------------------------------------------


def _dump_record(value: object, place: str, *, with_tag: bool) -> Json:
    data: dict[str, Json] = {"type": tag_of(type(value))} if with_tag else {}
    for name, annotation, _ in fields_of(cast("type", type(value))):
        data[name] = _dump(getattr(value, name), members_of(annotation), f"{place}.{name}")
    return data


def _dump(value: object, members: tuple[Member, ...], place: str) -> Json:
    open_ended = object in members
    if isinstance(value, tuple | frozenset):
        return _dump_tuple(value, members, place, open_ended=open_ended)
    if isinstance(value, Expression) and (open_ended or Expression in members):
        text_is_taken = open_ended or str in members
        return {"type": "expression", "text": value.text} if text_is_taken else value.text
    if (
        isinstance(value, Enum | Dtype)
        or value is None
        or isinstance(value, bool | int | float | str)
    ):
        return _dump_scalar(value, members, place, open_ended=open_ended)
    if is_record(type(value)) and (open_ended or type(value) in members):
        return _dump_record(value, place, with_tag=open_ended or type(value) in tagged())
    raise _refused(value, members, place)


def _dump_tuple(
    value: tuple[object, ...] | frozenset[object],
    members: tuple[Member, ...],
    place: str,
    *,
    open_ended: bool,
) -> Json:
    for member in members:
        if isinstance(member, Named):
            return _dump_named(cast("tuple[tuple[str, object], ...]", value), member, place)
        if isinstance(member, Fixed) and len(value) == len(member.elements):
            pairs = zip(value, member.elements, strict=True)
            return [_dump(v, members_of(e), f"{place}[{i}]") for i, (v, e) in enumerate(pairs)]
        if isinstance(member, Sequence):
            inner = members_of(member.element)
            ordered = sorted(cast("frozenset[str]", value)) if member.set_ else value
            return [_dump(item, inner, f"{place}[{i}]") for i, item in enumerate(ordered)]
    if open_ended and isinstance(value, tuple):
        return [_dump(item, members, f"{place}[{i}]") for i, item in enumerate(value)]
    raise _refused(value, members, place)


def _dump_named(value: tuple[tuple[str, object], ...], member: Named, place: str) -> Json:
    inner = members_of(member.value)
    data: dict[str, Json] = {}
    for name, item in value:
        if name in data:
            raise CodecError(f"{place}: the name {name!r} stands twice")
        data[name] = _dump(item, inner, f"{place}.{name}")
    return data


def _dump_scalar(
    value: object, members: tuple[Member, ...], place: str, *, open_ended: bool
) -> Json:
    if open_ended or _allows(value, members):
        if isinstance(value, Omit):
            return {"type": "omit"}
        if isinstance(value, Dtype):
            text_is_taken = open_ended or str in members
            return {"type": "dtype", "name": str(value)} if text_is_taken else str(value)
        if isinstance(value, float) and not math.isfinite(value):
            if members != (float,) and members != (float, type(None)):
                return {"type": "float", "value": repr(value)}
            raise CodecError(f"{place}: a measured number is finite, got {value!r}")
        return cast("Json", int(value) if isinstance(value, IntEnum) else value)
    raise _refused(value, members, place)


def _allows(value: object, members: tuple[Member, ...]) -> bool:
    """Whether a scalar may stand where `members` do; an int is a float, a bool is no int."""
    for member in members:
        if isinstance(member, Choice) and value in member.values:
            return True
        if member is type(value) or (member is float and type(value) is int):
            return True
    return False


def _refused(value: object, members: tuple[Member, ...], place: str) -> CodecError:
    return CodecError(
        f"{place}: must be {_described(members)}, got {type(value).__name__} {value!r}"
    )


# --- Data → value ---------------------------------------------------------------------------------


def _load(data: object, members: tuple[Member, ...], place: str) -> object:
    if isinstance(data, dict):
        return _load_object(data, members, place)
    if isinstance(data, list):
        return _load_array(data, members, place)
    return _load_scalar(data, members, place)


def _load_scalar(data: object, members: tuple[Member, ...], place: str) -> object:
    if isinstance(data, float) and not math.isfinite(data):  # json.loads lets NaN through
        raise CodecError(f"{place}: must be finite, got {data!r}")
    if object in members or type(data) in members:
        return data
    for member in members:
        if isinstance(member, Choice) and data in member.values:
            return data
        if member is float and type(data) is int:
            return float(data)
        by_text = member in (Dtype, Expression) and isinstance(data, str)
        by_number = isinstance(member, type) and issubclass(member, IntEnum) and type(data) is int
        if by_text or by_number:
            return _converted(cast("type", member), data, place)
    raise _unfit(data, members, place)


def _load_array(data: list[object], members: tuple[Member, ...], place: str) -> object:
    for member in members:
        if isinstance(member, Fixed) and len(data) == len(member.elements):
            pairs = zip(data, member.elements, strict=True)
            return tuple(_load(v, members_of(e), f"{place}[{i}]") for i, (v, e) in enumerate(pairs))
        if isinstance(member, Sequence):
            inner = members_of(member.element)
            items = tuple(_load(item, inner, f"{place}[{i}]") for i, item in enumerate(data))
            return frozenset(items) if member.set_ else items
    if object in members:
        return tuple(_load(item, members, f"{place}[{i}]") for i, item in enumerate(data))
    raise _unfit(data, members, place)


def _load_object(data: dict[str, object], members: tuple[Member, ...], place: str) -> object:
    for member in members:
        if isinstance(member, Named):
            inner = members_of(member.value)
            return tuple((name, _load(v, inner, f"{place}.{name}")) for name, v in data.items())
    open_ended = object in members
    tag = data.get("type")
    scalar = _load_scalar_object(data, members, place, open_ended=open_ended)
    if scalar is not None:
        return scalar
    beside = [cast("type", member) for member in members if is_record(member)]
    if len(beside) == 1 and beside[0] not in tagged():
        return _load_record(data, beside[0], place)
    candidates = records() if open_ended else {tag_of(kind): kind for kind in beside}
    if not candidates:
        raise _unfit(data, members, place)
    if not isinstance(tag, str) or tag not in candidates:
        raise CodecError(f"{place}: unknown type {tag!r}{_suggestion(str(tag), candidates)}")
    fields = {name: item for name, item in data.items() if name != "type"}
    return _load_record(fields, candidates[tag], place)


def _load_scalar_object(
    data: dict[str, object], members: tuple[Member, ...], place: str, *, open_ended: bool
) -> object:
    """The scalar that a tagged object stands for; `None` when it is none."""
    match data:
        case {"type": "omit", **rest} if not rest and (open_ended or Omit in members):
            return OMIT
        case {"type": "dtype", "name": str(name), **rest} if not rest and (
            open_ended or Dtype in members
        ):
            return _converted(Dtype, name, place)
        case {"type": "expression", "text": str(text), **rest} if not rest and (
            open_ended or Expression in members
        ):
            return _converted(Expression, text, place)
        case {"type": "float", "value": "inf" | "-inf" | "nan" as text, **rest} if not rest and (
            open_ended or float in members
        ):
            return float(text)
    return None


def _load_record(data: dict[str, object], kind: type, place: str) -> object:
    fields = fields_of(kind)
    known = [name for name, _, _ in fields]
    for name in data:
        if name not in known:
            raise CodecError(f"{place}: unknown field {name!r}{_suggestion(name, known)}")
    arguments: dict[str, object] = {
        name: value for (owner, name), value in LOCAL.items() if owner == kind.__name__
    }
    for name, annotation, required in fields:
        if name in data:
            arguments[name] = _load(data[name], members_of(annotation), f"{place}.{name}")
        elif required:
            raise CodecError(f"{place}: the field {name!r} is missing")
    return kind(**arguments)


def _converted(kind: type, data: object, place: str) -> object:
    try:
        return kind(data)
    except (ValueError, TirbenchError) as error:
        raise CodecError(f"{place}: {error}") from error


def _unfit(data: object, members: tuple[Member, ...], place: str) -> CodecError:
    names = {dict: "an object", list: "an array", type(None): "null"}
    got = names.get(type(data), repr(data))
    return CodecError(f"{place}: must be {_described(members)}, got {got}")


def _described(members: tuple[Member, ...]) -> str:
    words: list[str] = []
    for member in members:
        if isinstance(member, Choice):
            words += [repr(value) for value in member.values]
        elif isinstance(member, Sequence):
            words.append(f"an array of {member.element}")
        elif isinstance(member, Named):
            words.append(f"an object of {member.value}")
        elif isinstance(member, Fixed):
            words.append(f"an array of {', '.join(member.elements)}")
        else:
            words.append("null" if member is type(None) else member.__name__)
    return " or ".join(words)


def _suggestion(name: str, known: Any) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; one of {', '.join(known)}"
