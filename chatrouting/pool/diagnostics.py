"""What discovery made of the environment: which variables it used, which not, and why.

Names of variables and reasons only: no key and no URL stands here, so that all of it may be shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from typing_extensions import override

from chatrouting.pool.endpoint import Endpoint


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know about a variable.

    Attributes:
        variable: Its name.
        reason: What is the matter with it.
        is_problem: It is hardly meant so; `strict=True` refuses it.
    """

    variable: str
    reason: str
    is_problem: bool = True

    @override
    def __str__(self) -> str:
        return f"{self.variable}: {self.reason}"


@final
@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What was looked at for a pool. Empty for one that was not made from the environment.

    Attributes:
        used: Variables that gave a value, in the order of the members that they are for.
        skipped: Variables of endpoints that gave no member.
        remarks: What to know of the others.
        unmatched: Suffixes in overrides that no member has.
        origins: For each id of a member the fields that were set, with the variable of each.
    """

    used: tuple[str, ...] = ()
    skipped: tuple[Finding, ...] = ()
    remarks: tuple[Finding, ...] = ()
    unmatched: tuple[str, ...] = ()
    origins: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]], hash=False
    )

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What `strict=True` refuses."""
        return tuple(each for each in (*self.skipped, *self.remarks) if each.is_problem)


@final
@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found for a pool.

    Attributes:
        endpoints: The members, as the pool sorts them; at least one.
        diagnostics: How they came about.
        name: The provider and the model, as variables call it: "azure:GPT_4_O".
    """

    endpoints: tuple[Endpoint, ...]
    diagnostics: Diagnostics
    name: str
