"""Mappings and lists that refuse changes, for the values that requests are made of.

A request is given to one client after the other, and to several at once. What one of them changed
in a schema or in a tool's arguments, the next would send. So whatever is JSON inside a message or
options is copied once, when the value is made, into dicts and lists that refuse changes. They are
dicts and lists for everybody who reads them: equal to plain ones, and `json.dumps` takes them.
They can be hashed where all that they hold can, and with them messages and options.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn, Self, TypeVar, cast, final

from typing_extensions import override

_SCALARS: Final = frozenset({str, int, float, bool, type(None), bytes})

T = TypeVar("T", bound=Mapping[str, Any] | None)


def _refuse_mapping(*_: Any, **__: Any) -> NoReturn:
    raise TypeError(
        "this mapping is part of a request and cannot be changed; make a copy with dict(...)."
    )


def _refuse_list(*_: Any, **__: Any) -> NoReturn:
    raise TypeError(
        "this list is part of a request and cannot be changed; make a copy with list(...)."
    )


@final
class FrozenDict(dict[str, Any]):
    """A dict that refuses changes. Its own `copy()`, and `dict(...)`, are plain again."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse_mapping
    clear = pop = popitem = setdefault = update = _refuse_mapping

    @override
    def __hash__(self) -> int:  # type: ignore[override]  # a dict has none, for it may change
        return hash(frozenset(self.items()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Any]]]:
        # The usual way fills an empty one item by item, which is refused.
        return type(self), (dict(self),)


@final
class FrozenList(list[Any]):
    """A list that refuses changes. Its own `copy()`, and `list(...)`, are plain again."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse_list
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse_list

    @override
    def __hash__(self) -> int:  # type: ignore[override]  # a list has none, for it may change
        return hash(tuple(self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[type[Self], tuple[list[Any]]]:
        return type(self), (list(self),)


_EMPTY: Final = FrozenDict()


def frozen(mapping: T) -> T:
    """Return a mapping as one that refuses changes, at every depth; None stays None.

    What is inside and is neither a mapping, a list, a tuple nor plain JSON stays as it is. A
    mapping that is frozen already is returned as it is.

    Raises:
        TypeError: If `mapping` is no mapping.
    """
    kind = type(mapping)
    if mapping is None or kind is FrozenDict:
        return mapping
    if kind is not dict and not isinstance(mapping, Mapping):
        raise TypeError(
            f"got {type(mapping).__name__} where a request holds a mapping; "
            "give a dict, or leave it out."
        )
    return cast("T", _freeze(mapping) if mapping else _EMPTY)


def _freeze(value: object) -> object:
    # One frame for each level, and no comprehension, which is one more before Python 3.12: what
    # the JSON decoder could read can be frozen.
    kind = type(value)
    if kind in _SCALARS or kind is FrozenDict or kind is FrozenList:
        return value
    if isinstance(value, list) or kind is tuple:
        items: list[object] = []
        for item in cast("list[object]", value):
            items.append(_freeze(item))  # noqa: PERF401  # as above
        return FrozenList(items) if kind is not tuple else tuple(items)
    if kind is not dict and not isinstance(value, Mapping):
        return value
    mapping: dict[str, object] = {}
    for key, held in cast("Mapping[str, object]", value).items():
        mapping[key] = held if type(held) in _SCALARS else _freeze(held)
    return FrozenDict(mapping)
