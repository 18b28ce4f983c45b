"""Finding the members of a pool in the environment.

The grammar of names is that of TypeAgent's `aiclient`, with two repairs: what is skipped is said,
and settings are inherited downwards, from the provider to the kind, the model and the member. Every
call looks anew and nothing is kept, so a key that was changed counts from the next call on.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from chatrouting.errors import ConfigurationError, PoolConfigError
from chatrouting.pool._grammar import (
    DEFAULT_IMAGE_MODEL,
    EndpointKind,
    Naming,
    env_name,
    models_of,
    name_pool,
)
from chatrouting.pool._overrides import read_overrides
from chatrouting.pool._reading import Draft, Given, read_member
from chatrouting.pool._regions import KNOWN_REGIONS, read_regions
from chatrouting.pool._settings import Environment, SettingError
from chatrouting.pool.diagnostics import Diagnostics, Discovery, Finding
from chatrouting.pool.endpoint import EndpointProvider, TokenProvider

__all__ = ["discover", "discover_models", "env_name"]

logger = logging.getLogger("chatrouting.pool")

_MODELS_SHOWN: Final = 8


def discover(
    name: str | None = None,
    *,
    kind: EndpointKind = "chat",
    provider: EndpointProvider = "azure",
    env: Mapping[str, str | None] | None = None,
    regions: Iterable[str] = KNOWN_REGIONS,
    credential: TokenProvider | None = None,
    strict: bool = False,
    deployment: str | None = None,
    api_version: str | None = None,
    image_model: str = DEFAULT_IMAGE_MODEL,
    fallback_to_default: bool = False,
) -> Discovery:
    """Find the endpoints of a model.

    Args:
        name: The model as variables call it, such as "GPT_4_O"; `env_name` makes it from the name
            of a model. "azure:" or "openai:" in front goes before `provider`. None is the pool
            without a name.
        kind: What the endpoints do.
        provider: Whose API they speak.
        env: Variables; never changed. None takes a snapshot of the process's.
        regions: What counts as a region at the end of a name.
        credential: Gives the tokens of members that have no key. None leaves that to the
            `azure-identity` package.
        strict: Raise, if anything is hardly meant as it is, instead of going on without it.
        deployment: For URLs of Azure that name none.
        api_version: Likewise; None takes OPENAI_API_VERSION, as the SDK does.
        image_model: The model of a pool of images, which has no name of its own.
        fallback_to_default: Where no variable is about the model, take the endpoint and the key of
            the pool without a name, with a warning. For chat only.

    Returns:
        The members, sorted, and how they came about.

    Raises:
        PoolConfigError: If no member can be made, or `strict` finds something.
        ConfigurationError: If nothing is set at all, or an argument cannot be.
    """
    naming = name_pool(name, kind=kind, provider=provider, image_model=image_model)
    if fallback_to_default and kind != "chat":
        raise ConfigurationError(
            f"fallback_to_default is for chat, and kind is {kind!r}: another model would give "
            "answers of another kind, which nobody can tell apart."
        )
    search = _Search(
        naming,
        Given(
            Environment(os.environ if env is None else env),
            read_regions(regions),
            credential,
            deployment,
            api_version,
        ),
    )
    search.run(fallback_to_default=fallback_to_default)
    found = search.finish(strict=strict, asked=name)
    logger.debug(
        "pool.discovered pool=%s members=%s skipped=%s",
        found.name,
        [endpoint.id for endpoint in found.endpoints],
        [finding.variable for finding in found.diagnostics.skipped],
    )
    return found


def discover_models(
    env: Mapping[str, str | None] | None = None,
    *,
    kind: EndpointKind = "chat",
    regions: Iterable[str] = KNOWN_REGIONS,
) -> tuple[str, ...]:
    """List the models that have endpoints; regions and reserved throughput are not told apart.

    Args:
        env: Variables. None takes a snapshot of the process's.
        kind: What the models do.
        regions: What counts as a region at the end of a name.

    Returns:
        Names as `discover` takes them, in the order of the variables; those of OpenAI begin with
        "openai:". Those of images go to `image_model`.
    """
    variables = Environment(os.environ if env is None else env).values
    return tuple(models_of(kind, variables, read_regions(regions)))


class _Search:
    """One look at the environment, for one pool."""

    def __init__(self, naming: Naming, given: Given) -> None:
        self._naming = naming
        self._given = given
        self._members: dict[str, Draft] = {}
        self._skipped: list[Finding] = []
        self._remarks: list[Finding] = []
        self._unmatched: tuple[str, ...] = ()

    def run(self, *, fallback_to_default: bool) -> None:
        """Find the members, and what overrides say of them."""
        naming, values = self._naming, self._given.env.values
        candidates = [name for name in self._given.env.names if naming.belongs(name)]
        for variable in candidates:
            suffix = naming.suffix(variable)
            self._consider(naming, variable, suffix, id_=suffix)
        if values.keys().isdisjoint(candidates):
            general = naming.general_endpoint()
            if general in values:
                self._stand_in(naming, general, id_="")
            elif fallback_to_default and naming.name:
                # The key of this model would not fit the endpoint of another: both or neither.
                plain = Naming(naming.provider, "chat", "", "")
                self._stand_in(plain, plain.root, id_=naming.name)
        self._override()

    def _consider(self, naming: Naming, variable: str, suffix: str, *, id_: str) -> None:
        """Make a member of a variable, or say why not."""
        try:
            member = read_member(self._given, naming, variable, suffix)
        except SettingError as error:
            about = "" if error.variable == variable else f"{error.variable}: "
            self._skip(variable, about + error.reason)
            return
        if member is None:
            reason = "it belongs to another model, or ends in a region that is not known"
            self._skip(variable, reason, is_problem=False)
            return
        self._members[id_] = member
        for finding in member.remarks:
            self._remark(finding)

    def _stand_in(self, naming: Naming, variable: str, *, id_: str) -> None:
        self._consider(naming, variable, "", id_=id_)
        if id_ in self._members:
            base = self._naming.base
            logger.warning("pool.default_endpoint_used variable=%s instead_of=%s", variable, base)
            reason = f"it stands in for {base}, which is not set"
            self._remark(Finding(variable, reason, is_problem=False))

    def _override(self) -> None:
        overrides = read_overrides(self._given.env, self._naming, self._members)
        for id_, fields in overrides.fields.items():
            member = self._members[id_]
            member.fields.update(fields)
            member.origins.update(dict.fromkeys(fields, overrides.variables[id_]))
        self._unmatched = overrides.unmatched
        for finding in overrides.findings:
            self._remark(finding)

    def _skip(self, variable: str, reason: str, *, is_problem: bool = True) -> None:
        level = logging.WARNING if is_problem else logging.DEBUG
        logger.log(level, "pool.variable_skipped variable=%s reason=%s", variable, reason)
        self._skipped.append(Finding(variable, reason, is_problem))

    def _remark(self, finding: Finding) -> None:
        if finding in self._remarks:  # several members have it from one variable
            return
        if finding.is_problem:
            logger.warning(
                "pool.variable_doubtful variable=%s reason=%s", finding.variable, finding.reason
            )
        self._remarks.append(finding)

    def finish(self, *, strict: bool, asked: str | None) -> Discovery:
        """Build the members.

        Raises:
            PoolConfigError: If there are none, or `strict` finds something.
            ConfigurationError: If nothing is set at all.
        """
        naming = self._naming
        endpoints = [member.endpoint(id_) for id_, member in self._members.items()]
        # Stable, so members of one tier stay in the order of the environment.
        endpoints.sort(key=lambda each: (each.priority, each.id != naming.name))
        diagnostics = Diagnostics(
            used=tuple(dict.fromkeys(name for each in endpoints for name in each.source)),
            skipped=tuple(self._skipped),
            remarks=tuple(self._remarks),
            unmatched=self._unmatched,
            origins={id_: member.origins for id_, member in self._members.items()},
        )
        if strict and diagnostics.problems:
            raise PoolConfigError(
                _report(f"pool {naming.label} is not as it should be", diagnostics.problems),
                problems=[str(problem) for problem in diagnostics.problems],
            )
        if not endpoints:
            raise self._nothing_found(asked)
        return Discovery(tuple(endpoints), diagnostics, naming.label)

    def _nothing_found(self, asked: str | None) -> ConfigurationError:
        naming = self._naming
        if self._skipped:
            start = f"no usable endpoints discovered for {naming.label} (root={naming.root})"
            return PoolConfigError(
                _report(start, self._skipped), problems=[str(each) for each in self._skipped]
            )
        wanted = f", nor is {naming.base} or a variable that begins so" if naming.name else ""
        return ConfigurationError(f"{naming.root} is not set{wanted}.{self._hint(asked)}")

    def _hint(self, asked: str | None) -> str:
        models = models_of(self._naming.kind, self._given.env.values, self._given.regions)
        if asked and env_name(asked.rpartition(":")[2]) in models:
            return f" By env_name({asked!r}) it would be found."
        more = " and others" if len(models) > _MODELS_SHOWN else ""
        shown = ", ".join(models[:_MODELS_SHOWN]) + more
        return f" There are variables for: {shown}." if models else ""


def _report(start: str, findings: Sequence[Finding]) -> str:
    return "\n  ".join([f"{start}:", *map(str, findings)])
