"""`AZURE_OPENAI_POOL_<MODEL>`: a JSON array that corrects what names of variables say.

It changes members and never makes one. What cannot be used is left out, field by field, and said.
"""

import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, final

from chatrouting.pool._grammar import Naming
from chatrouting.pool._settings import Environment, show
from chatrouting.pool.diagnostics import Finding
from chatrouting.pool.endpoint import EndpointMode


class _NotUsableError(Exception):
    """A value that a field cannot take; says what it takes."""


@final
@dataclass(frozen=True, slots=True)
class Overrides:
    """What overrides say.

    Attributes:
        fields: For each id of a member, the fields to set.
        variables: For each id of a member, where they stand.
        unmatched: Suffixes that no member has.
        findings: What could not be used.
    """

    fields: Mapping[str, Mapping[str, Any]]
    variables: Mapping[str, str]
    unmatched: tuple[str, ...]
    findings: tuple[Finding, ...]


def read_overrides(env: Environment, naming: Naming, ids: Collection[str]) -> Overrides:
    """Read what is to be changed of the members with these ids."""
    fields: dict[str, Mapping[str, Any]] = {}
    variables: dict[str, str] = {}
    unmatched: dict[str, None] = {}
    findings: list[Finding] = []
    for variable in naming.overrides():
        for number, entry in enumerate(_entries(env, variable, findings), 1):
            suffix = entry.get("suffix")
            if not isinstance(suffix, str) or not suffix:
                findings.append(Finding(variable, f"entry {number} has no suffix"))
                continue
            id_ = next((each for each in naming.spellings(suffix) if each in ids), None)
            if id_ is None:
                unmatched[suffix] = None
                reason = f"no member has the suffix {show(suffix)}; expected one of "
                findings.append(Finding(variable, reason + ", ".join(map(show, ids))))
                continue
            # Of two entries for one member the later holds, as a whole.
            fields[id_], unusable = _read_entry(entry, f"entry {number}")
            variables[id_] = variable
            findings += [Finding(variable, reason) for reason in unusable]
    return Overrides(fields, variables, tuple(unmatched), tuple(findings))


def _entries(
    env: Environment, variable: str, findings: list[Finding]
) -> list[Mapping[str, object]]:
    text = env.values.get(variable)
    if text is None:
        return []
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        # Of the error only what it says of the form; the text itself is the user's.
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "it cannot be read"
        findings.append(Finding(variable, f"invalid JSON, the whole is ignored: {reason}"))
        return []
    if not isinstance(value, list):
        findings.append(Finding(variable, "no JSON array, the whole is ignored"))
        return []
    items = cast("list[object]", value)
    entries = [cast("Mapping[str, object]", item) for item in items if isinstance(item, dict)]
    if len(entries) != len(items):
        findings.append(Finding(variable, "items that are no objects are ignored"))
    return entries


def _read_entry(entry: Mapping[str, object], name: str) -> tuple[dict[str, Any], list[str]]:
    fields: dict[str, Any] = {}
    unusable: list[str] = []
    for key, value in entry.items():
        if key == "suffix" or value is None:
            continue
        if key not in _FIELDS:
            unusable.append(f"{name} has the field {show(key)}, which is ignored")
            continue
        try:
            read = _FIELDS[key](value)
        except _NotUsableError as error:
            unusable.append(f"{name}: {key} is {show(value)}, which is ignored; expected {error}")
        else:
            if read is not None:
                fields[key] = read
    return fields, unusable


def _whole(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise _NotUsableError("a whole number")


def _count(value: object) -> int:
    number = _whole(value)
    if number < 1:
        raise _NotUsableError("a whole number above 0")
    return number


def _weight(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _NotUsableError("a number above 0")
    if 0 < value <= sys.float_info.max:
        return float(value)
    raise _NotUsableError("a number above 0")


def _mode(value: object) -> EndpointMode | None:
    """Read a mode; None for "unknown", which says nothing that the name does not say better."""
    word = value.lower() if isinstance(value, str) else ""
    if word not in tuple(EndpointMode):
        raise _NotUsableError('"PTU" or "PAYG"')
    return None if word == EndpointMode.UNKNOWN else EndpointMode(word)


def _region(value: object) -> str:
    if not isinstance(value, str) or not value.isalnum():
        raise _NotUsableError("the name of a region, in one word")
    return value.lower()


_FIELDS: Final[Mapping[str, Callable[[object], Any]]] = {
    "priority": _whole,
    "mode": _mode,
    "tpm": _count,
    "rpm": _count,
    "capacity": _count,
    "weight": _weight,
    "region": _region,
}
