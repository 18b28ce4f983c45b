"""How each provider counts, as data.

A request in OpenAI's shape has not OpenAI's quota: one provider charges the output cap when the
request comes, another what was generated; one gives back what was not used, another does not. A
profile holds what is known of one, and what it means is explained, with sources, in
`docs/quota-profiles.md`. No profile knows how large anybody's limits are: those are configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypedDict, Unpack, final

from chatrouting._frozen import FrozenDict
from chatrouting.errors import ConfigurationError
from chatrouting.quota import token_rules
from chatrouting.quota._checks import (
    check_each,
    check_flag,
    check_kind,
    check_mapping,
    check_number,
    check_text,
)
from chatrouting.quota.headers import DAY
from chatrouting.quota.limits import (
    CONCURRENCY,
    CUSTOM,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    STREAM_SECONDS,
    TOTAL_TOKENS,
    BucketLimits,
    ChargePolicy,
    ProviderScope,
    QuotaLimit,
)
from chatrouting.quota.token_rules import TokenRules

#: A part of each limit that is left free, since requests arrive later than they were admitted.
_HEADROOM: Final = 0.05
#: Seconds by which one request may take longer to the provider than the next.
_JITTER: Final = 0.1
#: Seconds of a window in which jitter weighs more than a headroom.
_SHORT: Final = 10.0
_HELD: Final = (CONCURRENCY, STREAM_SECONDS)
_UNSET_CAPS: Final = ("model_maximum", "estimate")


class ProfileChanges(TypedDict, total=False):
    """The keyword arguments of `ProviderProfile.replace`."""

    name: str
    dimensions: tuple[str, ...]
    scope_parts: tuple[str, ...]
    policy: ChargePolicy
    tokens: TokenRules
    unset_cap: Literal["model_maximum", "estimate"]
    output_weight: float
    cap_held_as_input: bool
    short_windows: Mapping[str, float]
    header_windows: Mapping[str, float | None]
    header_scopes: tuple[str, ...]
    header_rounding: Mapping[str, float]
    growth_per_minute: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderProfile:
    """What one provider counts, when it charges it, and what it gives back.

    Attributes:
        name: Such as "azure".
        dimensions: What the provider limits. Concurrency and stream seconds may be limited
            everywhere, on our side.
        scope_parts: What tells one of its quotas from another: the names of the parts of a
            `ProviderScope`.
        policy: How a bucket that stands for the provider counts.
        tokens: What a request counts besides its text.
        unset_cap: What stands for the output cap of a request that has none: the most that the
            model can write, or the estimate.
        output_weight: What an output token counts, in input tokens, in a combined limit.
        cap_held_as_input: The cap takes room in the input limit until the request is settled.
        short_windows: Seconds over which a limit for a minute is judged, by dimension.
        header_windows: Seconds of a limit that a header names without its window; None where
            that is not known. A minute for the rest.
        header_scopes: Qualified limits that hold for every request, such as "project". Others,
            such as "priority", are for those who pay for them.
        header_rounding: What a header's amounts are rounded to, by dimension.
        growth_per_minute: How much faster traffic may become within a minute, as a part of what
            it was; None if the provider does not mind.
    """

    name: str
    dimensions: tuple[str, ...]
    scope_parts: tuple[str, ...]
    policy: ChargePolicy
    tokens: TokenRules
    unset_cap: Literal["model_maximum", "estimate"] = "estimate"
    output_weight: float = 1.0
    cap_held_as_input: bool = False
    short_windows: Mapping[str, float] = FrozenDict()
    header_windows: Mapping[str, float | None] = FrozenDict()
    header_scopes: tuple[str, ...] = ()
    header_rounding: Mapping[str, float] = FrozenDict()
    growth_per_minute: float | None = None

    def __post_init__(self) -> None:
        check_text("name of a profile", self.name)
        of_this = f"of profile {self.name!r}"
        for name in ("dimensions", "scope_parts", "header_scopes"):
            texts = check_each(f"{name} {of_this}", getattr(self, name), str, "texts")
            object.__setattr__(self, name, texts)
        for name in ("short_windows", "header_windows", "header_rounding"):
            self._check_amounts(name, f"{name} {of_this}")
        check_kind(f"policy {of_this}", self.policy, ChargePolicy, "a ChargePolicy")
        check_kind(f"tokens {of_this}", self.tokens, TokenRules, "TokenRules")
        check_flag(f"cap_held_as_input {of_this}", self.cap_held_as_input)
        check_number(f"output_weight {of_this}", self.output_weight, above=0)
        if self.growth_per_minute is not None:
            check_number(f"growth_per_minute {of_this}", self.growth_per_minute, above=0)
        if self.unset_cap not in _UNSET_CAPS:
            raise ConfigurationError(
                f"unset_cap {of_this} is {self.unset_cap!r}; expected one of "
                f"{', '.join(_UNSET_CAPS)}."
            )

    def _check_amounts(self, field: str, name: str) -> None:
        amounts = getattr(self, field)
        check_mapping(name, amounts, str, object, "an amount for each dimension")
        object.__setattr__(self, field, FrozenDict(amounts))
        for dimension, amount in amounts.items():
            # None in `header_windows`: not known.
            if amount is not None or field != "header_windows":
                check_number(f"{dimension} in {name}", amount, above=0)

    def replace(self, **changes: Unpack[ProfileChanges]) -> "ProviderProfile":
        """Return a copy with some fields changed, for a provider that has moved on."""
        return replace(self, **changes)

    def scope(self, **parts: str) -> ProviderScope:
        """Name a quota of this provider; equal parts are one quota.

        Raises:
            ConfigurationError: If a part is missing, or is none of this provider's.
        """
        if set(parts) != set(self.scope_parts):
            raise ConfigurationError(
                f"a scope of {self.name} has the parts {sorted(parts)}; "
                f"expected {', '.join(self.scope_parts)}."
            )
        return ProviderScope(self.name, parts)

    def bucket(
        self, *limits: QuotaLimit, headroom: float = _HEADROOM, jitter: float = _JITTER
    ) -> BucketLimits:
        """Make the limits of one quota of this provider, counted in its way.

        To a limit for a minute that the provider judges over a shorter time, a limit for that time
        is added.

        Args:
            limits: What the provider grants, as its console shows it.
            headroom: Part of each limit that is left free, where the limit has none of its own.
            jitter: Seconds by which the ways of two requests to the provider may differ. Over so
                much more than its window is a limit of some seconds kept.

        Raises:
            ConfigurationError: If there is no limit, or one on what the provider does not count.
        """
        if not limits:
            raise ConfigurationError(
                f"a quota of {self.name} has no limits; give those that your account has. "
                "A model's name does not tell them."
            )
        check_each("limits", limits, QuotaLimit, "QuotaLimits")
        check_number("jitter", jitter)
        for limit in limits:
            self._check_dimension(limit.dimension)
        short = [each for limit in limits for each in self._short(limit)]
        return BucketLimits(
            tuple(_with_margin(limit, headroom, jitter) for limit in (*limits, *short)), self.policy
        )

    def _check_dimension(self, dimension: str) -> None:
        known = (*self.dimensions, *_HELD)
        if dimension not in known and not dimension.startswith(CUSTOM):
            raise ConfigurationError(
                f"{self.name} does not count {dimension}; expected limits on {', '.join(known)}, "
                "or another profile."
            )

    def _short(self, limit: QuotaLimit) -> list[QuotaLimit]:
        window = self.short_windows.get(limit.dimension)
        if window is None or limit.kind not in ("ring", "bucket") or window >= limit.window:
            return []
        # A limit below one request for each of them lets one through all the same.
        amount = max(1.0, limit.amount * window / limit.window)
        return [QuotaLimit(limit.dimension, amount, window=window)]


def _with_margin(limit: QuotaLimit, headroom: float, jitter: float) -> QuotaLimit:
    """Leave room for what arrives later, or closer together, than it was sent."""
    if limit.kind == "gauge":
        # Slots and streams are whole: of four, 5 % would be one.
        return limit
    if limit.kind != "calendar" and limit.window <= _SHORT:
        return replace(limit, window=limit.window + jitter)
    return limit if limit.headroom else replace(limit, headroom=headroom)


def provider_profile(name: str) -> ProviderProfile:
    """Return a profile by its name.

    Raises:
        ConfigurationError: If there is none.
    """
    try:
        return PROVIDER_PROFILES[name]
    except (KeyError, TypeError):  # what cannot be hashed is no name
        raise ConfigurationError(
            f"provider profile {name!r} is not known; expected one of "
            f"{', '.join(PROVIDER_PROFILES)}, or a ProviderProfile of your own."
        ) from None


_SECOND: Final = 1.0
_TEN_SECONDS: Final = 10.0

_PROFILES: Final = (
    ProviderProfile(
        name="openai",
        dimensions=(REQUESTS, TOTAL_TOKENS),
        scope_parts=("organisation", "project", "model_group"),
        # Whether an estimate that was too high is given back is not published.
        policy=ChargePolicy(output_charge="cap", refund="none"),
        tokens=token_rules.OPENAI,
        header_scopes=("project",),
    ),
    ProviderProfile(
        name="azure",
        dimensions=(REQUESTS, TOTAL_TOKENS),
        scope_parts=("subscription", "region", "deployment"),
        policy=ChargePolicy(output_charge="cap", refund="none"),
        tokens=token_rules.OPENAI,
        unset_cap="model_maximum",
        short_windows={REQUESTS: _TEN_SECONDS},
        header_windows={REQUESTS: None},
    ),
    ProviderProfile(
        name="azure_ptu",
        dimensions=(TOTAL_TOKENS,),
        scope_parts=("subscription", "region", "deployment"),
        policy=ChargePolicy(
            output_charge="cap", cache_reads="release_on_settle", failed_requests="free"
        ),
        tokens=token_rules.OPENAI,
        unset_cap="model_maximum",
        header_windows={REQUESTS: None},
    ),
    ProviderProfile(
        name="anthropic",
        dimensions=(REQUESTS, INPUT_TOKENS, OUTPUT_TOKENS),
        scope_parts=("organisation", "workspace", "model_class"),
        # The provider counts output as it is generated: what is going to be is reserved here.
        policy=ChargePolicy(output_charge="estimate", cache_reads="free"),
        tokens=token_rules.ANTHROPIC,
        short_windows={REQUESTS: _SECOND},
        header_rounding={INPUT_TOKENS: 1_000.0, OUTPUT_TOKENS: 1_000.0},
        growth_per_minute=0.2,
    ),
    ProviderProfile(
        name="gemini",
        dimensions=(REQUESTS, INPUT_TOKENS),
        scope_parts=("project", "tier", "model"),
        policy=ChargePolicy(output_charge="generated"),
        tokens=token_rules.GEMINI,
    ),
    ProviderProfile(
        name="bedrock_runtime",
        dimensions=(REQUESTS, TOTAL_TOKENS),
        scope_parts=("account", "region", "model"),
        policy=ChargePolicy(output_charge="cap", cache_reads="release_on_settle"),
        tokens=token_rules.ANTHROPIC,
        unset_cap="model_maximum",
    ),
    ProviderProfile(
        name="bedrock_mantle",
        dimensions=(INPUT_TOKENS, OUTPUT_TOKENS),
        scope_parts=("account", "region", "model"),
        policy=ChargePolicy(output_charge="estimate", cache_reads="free", failed_requests="free"),
        tokens=token_rules.ANTHROPIC,
        unset_cap="model_maximum",
        cap_held_as_input=True,
    ),
    ProviderProfile(
        name="groq",
        dimensions=(REQUESTS, INPUT_TOKENS, OUTPUT_TOKENS, TOTAL_TOKENS),
        scope_parts=("organisation", "model"),
        policy=ChargePolicy(output_charge="estimate", cache_reads="free"),
        tokens=token_rules.GENERIC,
        header_windows={REQUESTS: DAY},
    ),
    ProviderProfile(
        name="mistral",
        dimensions=(REQUESTS, TOTAL_TOKENS),
        scope_parts=("organisation",),
        policy=ChargePolicy(output_charge="estimate"),
        tokens=token_rules.GENERIC,
        short_windows={REQUESTS: _SECOND},
        header_windows={REQUESTS: _SECOND},
    ),
    ProviderProfile(
        name="self_hosted",
        # No rates are counted: capacity is how many requests run at once.
        dimensions=(),
        scope_parts=("server",),
        policy=ChargePolicy(output_charge="estimate", failed_requests="free"),
        tokens=token_rules.GENERIC,
    ),
)
PROVIDER_PROFILES: Final[Mapping[str, ProviderProfile]] = FrozenDict(
    {profile.name: profile for profile in _PROFILES}
)
