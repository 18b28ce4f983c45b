"""What the variables of one member say: its address, its key, its numbers.

Each setting is read from the variable that is nearest to the member, see `Naming.variables`.
"""

from dataclasses import dataclass
from typing import Any, Final, final

from chatrouting.pool._grammar import Naming, Tail, read_tail
from chatrouting.pool._settings import Environment, SettingError, read_tuning
from chatrouting.pool._urls import SplitURL, split_url
from chatrouting.pool.diagnostics import Finding
from chatrouting.pool.endpoint import ApiKey, Endpoint, EndpointMode, Identity, TokenProvider

#: Stands for a key and asks for a token instead.
_IDENTITY: Final = "identity"
#: Settings of TypeAgent's that have no counterpart here.
_WITHOUT_EFFECT: Final = ("MAX_CHARS", "RESPONSE_FORMAT", "ORGANIZATION")
_PREFERRED: Final = 1
_OTHER: Final = 2


@final
@dataclass(frozen=True, slots=True)
class Given:
    """What the caller of a discovery gives, the same for all members."""

    env: Environment
    regions: frozenset[str]
    credential: TokenProvider | None
    deployment: str | None
    api_version: str | None


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """An endpoint in the making.

    Attributes:
        fields: What to make it of.
        origins: For a field the variable that it is from; none for what nobody set.
        remarks: What to know of its variables.
    """

    fields: dict[str, Any]
    origins: dict[str, str]
    remarks: list[Finding]

    def endpoint(self, id_: str) -> Endpoint:
        """Make it."""
        return Endpoint(id_, **self.fields, source=tuple(dict.fromkeys(self.origins.values())))


def read_member(given: Given, naming: Naming, variable: str, suffix: str) -> Draft | None:
    """Read a member of a pool.

    Args:
        given: Where to look.
        naming: How the variables of the pool are called.
        variable: That of the endpoint.
        suffix: What follows the root in it.

    Returns:
        The member, or None if the variable belongs to another model.

    Raises:
        SettingError: If one of its variables holds what it cannot.
    """
    is_bare = suffix == naming.name
    unmarked = Tail(None, EndpointMode.UNKNOWN)
    tail = unmarked if is_bare else read_tail(naming.tail(suffix), given.regions)
    if tail is None:
        return None
    url = _read_url(given, naming, variable)
    tuning = read_tuning(given.env, naming, suffix)
    member = Draft(tuning.fields, {"url": variable, **tuning.origins}, [])
    member.fields.update(
        url=url.url,
        provider=naming.provider,
        region=tail.region,
        mode=tail.mode,
        priority=_PREFERRED if is_bare or tail.mode is EndpointMode.PTU else _OTHER,
        auth=_read_auth(given, naming, suffix, member.origins),
    )
    member.remarks.extend(Finding(variable, doubt) for doubt in url.doubts)
    for setting in _WITHOUT_EFFECT:
        unused = given.env.first(naming.variables(setting, suffix))
        if unused is not None:
            reason = "it has no effect on a pool"
            member.remarks.append(Finding(unused.variable, reason, is_problem=False))
    if naming.provider == "azure":
        _set_deployment(given, variable, url, member)
        _set_version(given, variable, url, member)
    else:
        _set_model(given, naming, suffix, member)
    return member


def _read_url(given: Given, naming: Naming, variable: str) -> SplitURL:
    if variable not in given.env.values:
        raise SettingError(variable, "it is empty")
    try:
        return split_url(given.env.values[variable], provider=naming.provider, kind=naming.kind)
    except ValueError as error:
        raise SettingError(variable, str(error)) from None


def _read_auth(
    given: Given, naming: Naming, suffix: str, origins: dict[str, str]
) -> ApiKey | Identity:
    names = naming.variables("API_KEY", suffix)
    key = given.env.first(names)
    if key is not None:
        origins["auth"] = key.variable
        if key.value.lower() != _IDENTITY:
            return ApiKey(key.value)
    if naming.provider == "openai" and given.credential is None:
        # What asks Azure for a token has none for anybody else.
        raise SettingError(names[-1], "there is no key, and no credential was given")
    return Identity(given.credential)


def _set_deployment(given: Given, variable: str, url: SplitURL, member: Draft) -> None:
    if url.deployment is not None:
        member.origins["deployment"] = variable
    elif given.deployment is None:
        # Not guessed from the name of the variable: a deployment may be called anything.
        reason = "it names no deployment; give deployment="
        member.remarks.append(Finding(variable, reason, is_problem=False))
    member.fields["deployment"] = url.deployment or given.deployment


def _set_version(given: Given, variable: str, url: SplitURL, member: Draft) -> None:
    standard = given.env.first(["OPENAI_API_VERSION"])
    if url.api_version is not None:
        member.origins["api_version"], version = variable, url.api_version
    elif not url.has_versions:
        version = None
    elif given.api_version is None and standard is not None:
        member.origins["api_version"], version = standard
    else:
        version = given.api_version
        if version is None:
            reason = "it names no api-version; give api_version=, or set OPENAI_API_VERSION"
            member.remarks.append(Finding(variable, reason, is_problem=False))
    member.fields["api_version"] = version


def _set_model(given: Given, naming: Naming, suffix: str, member: Draft) -> None:
    names = naming.variables("MODEL", suffix)
    model = given.env.first(names)
    if model is not None:
        member.origins["model"], member.fields["model"] = model
        return
    general = names[-1] if naming.kind == "chat" else names[-2]
    reason = "it is not set, so a member does not know its model"
    member.remarks.append(Finding(general, reason, is_problem=False))
