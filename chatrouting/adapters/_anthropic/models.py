"""What is known of Claude models, and who a request is for.

A table in code: which generation takes sampling values, a prefilled answer, or which way of asking
for thinking. It follows what Anthropic documents for each generation; a model that it does not know
is taken to be like the newest ones, except that the provider itself may refuse a prefill.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from chatrouting.errors import UnsupportedOptionError

#: (major, minor) of a Claude model; None for a name that does not say.
Version = tuple[int, int]

_NAMES = re.compile(r"claude-(?:[a-z]+-)?(?P<major>\d+)(?:[.-](?P<minor>\d{1,2}))?(?![\d])")
#: What a name may carry around the family: region and vendor before it, date and revision after it.
_PREFIX = re.compile(r"^(?:.*[./])?(?=claude)")
_SUFFIX = re.compile(r"(?:[-@]20\d{6})?(?:[-@](?:latest|default))?(?:-v\d+)?(?::.*)?$")

LAST_WITH_SAMPLING: Version = (4, 6)
LAST_WITH_PREFILL: Version = (4, 5)
#: From here on temperature and top_p exclude each other.
FIRST_WITH_ONE_SAMPLING_VALUE: Version = (4, 1)
#: Knows `output_config.format`.
FIRST_WITH_SCHEMA: Version = (4, 1)
FIRST_WITH_THINKING: Version = (3, 7)
FIRST_WITH_ADAPTIVE_THINKING: Version = (4, 6)
#: Knew the effort before thinking became adaptive.
_EARLY_EFFORT = re.compile(r"claude-opus-4[.-]5")


def model_family(model: str) -> str:
    """Return a model's name without vendor, region, date and revision.

    Names of one family share what a signature of theirs proves: "claude-sonnet-4-5-20250929" and
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0" are both "claude-sonnet-4-5".
    """
    name = _PREFIX.sub("", model)
    return _SUFFIX.sub("", name) if name.startswith("claude") else model


@dataclass(frozen=True)
class Target:
    """Who a request is for. One for many requests: what its name says is read once.

    Attributes:
        provider: As the adapter names itself, such as "anthropic".
        model: The model asked for.
        endpoint: The base URL that the client sends to, without credentials.
    """

    provider: str
    model: str
    endpoint: str

    @cached_property
    def family(self) -> str:
        """The model's family."""
        return model_family(self.model)

    @cached_property
    def origin(self) -> str:
        """The issuer of reasoning: provider, endpoint and model family."""
        return f"{self.provider} {self.endpoint} {self.family}"

    @cached_property
    def version(self) -> Version | None:
        """The model's version; None for a name that does not say."""
        match = _NAMES.match(self.family)
        return None if match is None else (int(match["major"]), int(match["minor"] or 0))

    @property
    def takes_sampling(self) -> bool:
        """Whether temperature, top_p and top_k are known to be taken."""
        version = self.version
        return version is not None and version <= LAST_WITH_SAMPLING

    @property
    def takes_one_sampling_value(self) -> bool:
        """Whether temperature and top_p exclude each other."""
        version = self.version
        return version is not None and version >= FIRST_WITH_ONE_SAMPLING_VALUE

    @property
    def refuses_schema(self) -> bool:
        """Whether an answer by a JSON schema is known not to be offered."""
        version = self.version
        return version is not None and version < FIRST_WITH_SCHEMA

    @property
    def refuses_prefill(self) -> bool:
        """Whether a conversation that ends with the assistant is known to be refused."""
        version = self.version
        return version is not None and version > LAST_WITH_PREFILL

    @property
    def thinking(self) -> Literal["none", "budget", "adaptive"]:
        """How the model is asked to think."""
        version = self.version
        if version is None or version >= FIRST_WITH_ADAPTIVE_THINKING:
            return "adaptive"
        return "budget" if version >= FIRST_WITH_THINKING else "none"

    @property
    def takes_effort(self) -> bool:
        """Whether `output_config.effort` is known to the model."""
        return self.thinking == "adaptive" or _EARLY_EFFORT.match(self.family) is not None

    def unsupported(self, what: str, advice: str) -> UnsupportedOptionError:
        """Make the error for something that this client cannot carry."""
        return UnsupportedOptionError(
            f"{self.provider} (model {self.model!r}) cannot carry {what}; {advice}",
            provider=self.provider,
            model=self.model,
        )
