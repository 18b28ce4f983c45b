"""How variables of the environment are called: which belong to a pool, and what their names say.

Pure functions of names; no value is looked at here. The words are those of TypeAgent's `aiclient`:
the *root* is the variable of a kind of model, the *base* is the root with the name of a model, a
*suffix* is what follows the root, and a *tail* is what follows the base: a region, and `PTU` for
reserved throughput.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, final, get_args

from chatrouting.errors import ConfigurationError
from chatrouting.pool.endpoint import EndpointMode, EndpointProvider

#: What the endpoints of a pool do.
EndpointKind: TypeAlias = Literal["chat", "embedding", "image", "video"]

#: The word in the names of a kind's variables; that of images is the caller's to choose.
KIND_WORDS: Final[dict[str, str]] = {"chat": "", "embedding": "EMBEDDING", "video": "SORA_2"}
DEFAULT_IMAGE_MODEL: Final = "GPT_IMAGE_1_5"
#: Stands for any version of the model, in variables for images.
_ANY_IMAGE_MODEL: Final = "GPT_IMAGE"
#: What begins with these is no chat model.
_FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "chat": (),
    "embedding": ("EMBEDDING",),
    "image": ("GPT_IMAGE", "DALLE"),
    "video": ("SORA",),
}
_ROOTS: Final[dict[str, str]] = {"azure": "AZURE_OPENAI", "openai": "OPENAI"}
#: Providers that TypeAgent's names can mean, and that have no pools here.
_FOREIGN: Final = ("ollama", "copilot")
_MOST_PIECES: Final = 3


@final
@dataclass(frozen=True, slots=True)
class Tail:
    """What the end of a name says."""

    region: str | None
    mode: EndpointMode


@final
@dataclass(frozen=True, slots=True)
class Naming:
    """How the variables of one pool are called.

    Attributes:
        provider: Whose API the endpoints speak.
        kind: What they do.
        word: The word of the kind; empty for chat.
        name: The model, upper case; empty for a pool without a name.
    """

    provider: EndpointProvider
    kind: EndpointKind
    word: str
    name: str

    @property
    def root(self) -> str:
        """The variable of the kind."""
        return self._variable("ENDPOINT", self.word)

    @property
    def base(self) -> str:
        """The variable of the model; the root where there is no name."""
        return self._variable("ENDPOINT", self.word, self.name)

    @property
    def label(self) -> str:
        """What messages call the pool, such as "azure:GPT_4_O"."""
        return f"{self.provider}:{_join(self.word, self.name)}".removesuffix(":")

    def belongs(self, variable: str) -> bool:
        """Say whether a variable may be of a member of this pool."""
        if variable == self.base:
            return True
        # The root of chat is the beginning of every model's variable.
        is_scanned = bool(self.word or self.name)
        return is_scanned and variable.startswith(self.base + "_")

    def suffix(self, variable: str) -> str:
        """Return what follows the root: the name of a member."""
        return variable[len(self.root) + 1 :]

    def tail(self, suffix: str) -> str:
        """Return what follows the name of the model."""
        return suffix[len(self.name) :].removeprefix("_") if self.name else suffix

    def variables(self, setting: str, suffix: str) -> tuple[str, ...]:
        """Return where a setting of a member may stand, what counts most first.

        A member's own variable, that of its model, that of its kind, that of the provider.
        """
        own, model = [(self.word, suffix)], [(self.word, self.name)]
        if self.provider == "openai" and self.word:
            # Here the kind may stand in the endpoint's variable alone.
            own.append(("", suffix))
            model.append(("", self.name))
        if self._any_version():
            # In front of that of the version, as TypeAgent has it.
            model.insert(0, (self._any_version(), ""))
        parts = [*own, *model, (self.word, ""), ("", "")]
        return tuple(dict.fromkeys(self._variable(setting, *each) for each in parts))

    def general_endpoint(self) -> str | None:
        """Return the variable that stands in where no version of an image model has its own."""
        word = self._any_version()
        return self._variable("ENDPOINT", word) if word else None

    def overrides(self) -> tuple[str, ...]:
        """Return the variables that may correct what names say; what stands in a later one wins."""
        names = (self.name, _join(self.word, self.name))
        return tuple(f"AZURE_OPENAI_POOL_{name}" for name in dict.fromkeys(names) if name)

    def spellings(self, suffix: str) -> tuple[str, str]:
        """Return the suffixes that one in an override may mean: as written, and without the word.

        TypeAgent's own tool writes the word of the kind in front.
        """
        has_word = bool(self.word) and f"{suffix}_".startswith(f"{self.word}_")
        return suffix, suffix[len(self.word) + 1 :] if has_word else suffix

    def _any_version(self) -> str:
        is_version = self.kind == "image" and self.word.startswith(_ANY_IMAGE_MODEL + "_")
        return _ANY_IMAGE_MODEL if is_version else ""

    def _variable(self, setting: str, *parts: str) -> str:
        return _join(_ROOTS[self.provider], setting, *parts)


def name_pool(
    name: str | None,
    *,
    kind: EndpointKind,
    provider: EndpointProvider,
    image_model: str = DEFAULT_IMAGE_MODEL,
) -> Naming:
    """Find out how the variables of a pool are called.

    Args:
        name: The model, such as "GPT_4_O", with "azure:" or "openai:" in front if need be; the name
            of a provider alone is its pool without a name, as None is.
        kind: What its endpoints do.
        provider: Whose API they speak, unless the name says so.
        image_model: The model of a pool of images.

    Raises:
        ConfigurationError: If one of them cannot be.
    """
    if kind not in get_args(EndpointKind):
        kinds = ", ".join(repr(each) for each in get_args(EndpointKind))
        raise ConfigurationError(f"kind is {kind!r}; expected one of {kinds}.")
    _check_provider(provider)
    model = name or ""
    head, colon, rest = model.partition(":")
    if colon or head.lower() in (*_ROOTS, *_FOREIGN):
        provider, model = _check_provider(head.lower()), rest
    if kind == "image" and model:
        raise ConfigurationError(
            f"a pool of images has no name, but {name!r} was given; use image_model={name!r}."
        )
    word = _read_model(image_model) if kind == "image" else KIND_WORDS[kind]
    return Naming(provider, kind, word, _read_model(model) if model else "")


def read_tail(tail: str, regions: frozenset[str]) -> Tail | None:
    """Read a region and a mode, or return None: the tail is part of another model's name."""
    pieces = [piece for piece in tail.split("_") if piece]
    is_ptu = bool(pieces) and pieces[-1].upper() == "PTU"
    mode = EndpointMode.PTU if is_ptu else EndpointMode.PAYG
    pieces = pieces[:-1] if is_ptu else pieces
    if not pieces:
        return Tail(None, mode)
    region = "".join(pieces).lower()
    return Tail(region, mode) if len(pieces) <= _MOST_PIECES and region in regions else None


def models_of(kind: EndpointKind, variables: Iterable[str], regions: frozenset[str]) -> list[str]:
    """Return the names of the models that variables of endpoints are about.

    Variants of a region and of reserved throughput are the same model. Names of OpenAI's begin
    with "openai:", as `name_pool` takes them.
    """
    found: dict[str, None] = {}
    for variable in variables:
        for provider, root in _ROOTS.items():
            suffix = variable.removeprefix(f"{root}_ENDPOINT_")
            if suffix != variable and (model := _model_of(kind, suffix, regions)):
                found[("" if provider == "azure" else f"{provider}:") + model.upper()] = None
    return list(found)


def env_name(model: str) -> str:
    """Return how a model is called in names of variables, such as GPT_4_O for "gpt-4o".

    That is the name which TypeAgent's provisioning writes, and which pools are built by. A model
    for embeddings loses what its variables say anyway: "text-embedding-3-small" is 3_SMALL, and
    "text-embedding-ada-002" is empty, for its pool has no name.

    Raises:
        ConfigurationError: If it is no name of a model.
    """
    lower = model.lower()
    if lower == "text-embedding-ada-002":
        return ""
    # Only here a letter is set apart: gpt-35-turbo-16k is GPT_35_TURBO_16K.
    return _read_model(lower.removeprefix("text-embedding-").replace("gpt-4o", "gpt-4-o"))


def _model_of(kind: EndpointKind, suffix: str, regions: frozenset[str]) -> str:
    family = next((each for each, words in _FAMILIES.items() if _begins(suffix, words)), "chat")
    if family != kind:
        return ""
    if kind == "embedding":
        suffix = suffix.removeprefix("EMBEDDING").removeprefix("_")
        if read_tail(suffix, regions) is not None:
            return ""
    return _without_tail(suffix, regions)


def _without_tail(suffix: str, regions: frozenset[str]) -> str:
    """Cut a region and a mode off, but never the whole name."""
    head, _, last = suffix.rpartition("_")
    if head and last.upper() == "PTU":
        suffix = head
    # The longest first: NORTH_CENTRAL_US ends in a region of its own.
    for count in range(_MOST_PIECES, 0, -1):
        model, *pieces = suffix.rsplit("_", count)
        if model and "".join(pieces).lower() in regions:
            return model.rstrip("_")
    return suffix


def _begins(suffix: str, words: tuple[str, ...]) -> bool:
    return suffix.startswith(words) if words else False


def _check_provider(provider: str) -> EndpointProvider:
    if provider in _FOREIGN:
        raise ConfigurationError(
            f"pools are not applicable to {provider}; expected 'azure' or 'openai'."
        )
    if provider not in _ROOTS:
        raise ConfigurationError(f"provider is {provider!r}; expected 'azure' or 'openai'.")
    return cast("EndpointProvider", provider)


def _read_model(model: str) -> str:
    name = re.sub(r"[-.]", "_", model.upper())
    if not re.fullmatch(r"[A-Z0-9_]+", name):
        raise ConfigurationError(
            f"{model!r} is no name of a model; expected letters, digits, '_', '-' and '.'."
        )
    return name


def _join(*parts: str) -> str:
    return "_".join(part for part in parts if part)
