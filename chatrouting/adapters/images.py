"""Images over the OpenAI SDK's client: OpenAI, Azure, and the servers that imitate them.

    client = OpenAIImageClient(AsyncOpenAI(), "gpt-image-1.5")
    answer = await client.generate("A lighthouse at night", ImageOptions(size="1024x1024"))
    (picture,) = answer.images

Pictures are never streamed here. Bytes come as `DataContent`, what the provider keeps for a while
as `UriContent`: the content types of a message, so that a picture can be sent on as it is.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final, runtime_checkable

from anyio import to_thread

from chatrouting._frozen import frozen
from chatrouting.adapters._connection import Answer, Call, FormFile
from chatrouting.adapters._errors import Errors
from chatrouting.adapters._json import Json, as_count, as_object, as_objects, as_text
from chatrouting.adapters._openai_sdk import IMAGE_EDITS, IMAGE_GENERATIONS, OpenAIConnection
from chatrouting.client import ClosingClient
from chatrouting.contents import DataContent, UriContent
from chatrouting.errors import ConfigurationError
from chatrouting.options import check_count
from chatrouting.policies.error_body import holds_error
from chatrouting.usage import Usage

if TYPE_CHECKING:
    from chatrouting.adapters._openai_sdk import AsyncOpenAI

__all__ = ["ImageClient", "ImageOptions", "ImageResponse", "OpenAIImageClient"]

#: Bytes of an answer from which decoding it would hold up the event loop for milliseconds.
_LARGE_ANSWER: Final = 1_000_000
_FORM: Final = {"Content-Type": "multipart/form-data"}

Image: TypeAlias = DataContent | UriContent


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """What else a caller asks for. None is not sent.

    Attributes:
        count: Pictures, at least 1.
        size: Such as "1024x1024".
        quality: Such as "high"; the words are the provider's.
        background: Such as "transparent".
        output_format: "png", "jpeg" or "webp".
        additional_properties: Further fields of the provider's own request.
    """

    count: int | None = None
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: str | None = None
    additional_properties: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ConfigurationError: If `count` is less than 1.
        """
        if self.count is not None:
            check_count("count", self.count)
        if self.additional_properties is not None:
            object.__setattr__(self, "additional_properties", frozen(self.additional_properties))


@final
@dataclass(frozen=True, slots=True)
class ImageResponse:
    """Pictures.

    Attributes:
        images: In the provider's order, at least one.
        usage: Tokens, where the provider counts them.
    """

    images: tuple[Image, ...]
    usage: Usage | None = None


@runtime_checkable
class ImageClient(Protocol):
    """Something that makes pictures. Safe for many concurrent tasks."""

    async def generate(self, prompt: str, options: ImageOptions | None = None) -> ImageResponse:
        """Make pictures from words."""
        ...

    async def edit(
        self,
        prompt: str,
        images: Sequence[DataContent],
        options: ImageOptions | None = None,
        *,
        mask: DataContent | None = None,
    ) -> ImageResponse:
        """Make pictures from words and pictures.

        Args:
            prompt: What to make.
            images: At least one.
            options: What else is asked for.
            mask: Where the first picture is transparent here, it may be changed.
        """
        ...

    async def aclose(self) -> None:
        """Give up what the client holds. May be called more than once."""
        ...


@final
class OpenAIImageClient(ClosingClient):
    """Makes pictures over the OpenAI SDK. Safe for many concurrent tasks.

    The SDK's own retries are off for what goes through here.
    """

    def __init__(self, client: "AsyncOpenAI | None" = None, model: str | None = None) -> None:
        """Wrap an SDK client.

        Args:
            client: An `AsyncOpenAI` or a subclass; it stays the caller's. None: one is made from
                the environment at the first request, and closed with this client.
            model: Model, or Azure's deployment.

        Raises:
            TypeError: If `client` is something else.
        """
        self._connection = OpenAIConnection(client)
        self._model = model

    async def generate(self, prompt: str, options: ImageOptions | None = None) -> ImageResponse:
        """Make pictures from words.

        Raises:
            ConfigurationError: If no model is named.
            ChatClientError: If the provider refuses, cannot be reached, or gives no pictures.
            LocalSaturationError: If the SDK client's connection pool is full.
        """
        errors, body = self._begin(prompt, options)
        return await self._send(Call(IMAGE_GENERATIONS, body), errors)

    async def edit(
        self,
        prompt: str,
        images: Sequence[DataContent],
        options: ImageOptions | None = None,
        *,
        mask: DataContent | None = None,
    ) -> ImageResponse:
        """Make pictures from words and pictures; the errors are those of `generate`.

        Raises:
            ConfigurationError: If there is no picture, or no model is named.
            TypeError: If a picture is no `DataContent`.
        """
        files = _files(images, mask)
        errors, body = self._begin(prompt, options)
        return await self._send(Call(IMAGE_EDITS, body, _FORM, files), errors)

    async def aclose(self) -> None:
        """Close the SDK client if it was made here; one that was given stays open."""
        await self._connection.aclose()

    def _begin(self, prompt: str, options: ImageOptions | None) -> tuple[Errors, dict[str, Any]]:
        self._connection.check_open()
        if not self._model:
            raise ConfigurationError(
                "no model is named: give one to OpenAIImageClient(client, model)."
            )
        options = options or ImageOptions()
        fields = {
            "model": self._model,
            "prompt": prompt,
            "n": options.count,
            "size": options.size,
            "quality": options.quality,
            "background": options.background,
            "output_format": options.output_format,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        body |= options.additional_properties or {}
        return Errors(self._connection.provider, self._model), body

    async def _send(self, call: Call, errors: Errors) -> ImageResponse:
        with errors.translating():
            answer = await self._connection.post(call)
        if len(answer.content) < _LARGE_ANSWER:
            return _read(answer, errors)
        return await to_thread.run_sync(_read, answer, errors)


def _files(images: Sequence[DataContent], mask: DataContent | None) -> list[FormFile]:
    if not images:
        raise ConfigurationError("images is empty; give at least one picture to edit.")
    given = [*images] if mask is None else [*images, mask]
    for picture in given:
        if not isinstance(picture, DataContent):
            raise TypeError(f"a picture is {type(picture).__name__}; expected DataContent.")
    field = "image" if len(images) == 1 else "image[]"
    names = [field] * len(images) + ["mask"]
    return [
        (name, (each.name or f"{number}.png", each.data, each.media_type))
        for number, (name, each) in enumerate(zip(names, given, strict=False), 1)
    ]


def _read(answer: Answer, errors: Errors) -> ImageResponse:
    decoded = answer.decoded(errors)
    if holds_error(decoded):
        raise errors.of_answer(status=200, headers=answer.headers, body=decoded)
    body = as_object(decoded)
    media_type = f"image/{as_text(body.get('output_format')) or 'png'}"
    items = as_objects(body.get("data"))
    try:
        images = tuple(_image(item, media_type) for item in items)
    except (ValueError, binascii.Error):
        images = ()
    if not images:
        reason = f"{len(items)} images, at least one of which cannot be read"
        raise errors.unreadable(reason if items else "no images", headers=answer.headers)
    return ImageResponse(images, _usage(as_object(body.get("usage"))))


def _image(item: Json, media_type: str) -> Image:
    encoded, url = as_text(item.get("b64_json")), as_text(item.get("url"))
    if encoded:
        return DataContent(base64.b64decode(encoded, validate=True), media_type)
    if url:
        return UriContent(url, media_type)
    raise ValueError("neither bytes nor an address")


def _usage(usage: Json) -> Usage | None:
    if not usage:
        return None
    return Usage(
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
    )
