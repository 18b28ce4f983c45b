"""Taking URLs of requests apart: where the endpoint is, its deployment, its version of the API.

TypeAgent keeps the whole URL of a request in a variable; the SDKs want its parts. What cannot be
told from the URL is left open, and what cannot be read is kept as it stands and said: nothing is
guessed. No message holds the URL itself, for a key may have come into the wrong variable.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from chatrouting.pool._grammar import EndpointKind
from chatrouting.pool.endpoint import EndpointProvider

_OPERATIONS: Final[dict[str, tuple[str, ...]]] = {
    "chat": ("chat/completions", "responses", "completions"),
    "embedding": ("embeddings",),
    "image": ("images/generations", "images/edits"),
    "video": ("videos", "videos/generations/jobs", "video/generations/jobs"),
}
_EVERY_OPERATION: Final = tuple(each for names in _OPERATIONS.values() for each in names)
_UNKNOWN_PATH: Final = "its path is not Azure's, and is kept; let that of a gateway end in /openai"


@final
@dataclass(frozen=True, slots=True)
class SplitURL:
    """The parts of a URL.

    Attributes:
        url: Without deployment, operation and query; that of the newer Azure API ends in
            "/openai/v1".
        deployment: What Azure calls the deployment; None if the URL does not say.
        api_version: Likewise.
        has_versions: The API behind it wants to be told its version.
        doubts: What may not be as it was meant.
    """

    url: str
    deployment: str | None = None
    api_version: str | None = None
    has_versions: bool = False
    doubts: tuple[str, ...] = ()


def split_url(text: str, *, provider: EndpointProvider, kind: EndpointKind) -> SplitURL:
    """Take a URL apart.

    Args:
        text: A whole URL of a request, or any beginning of it down to the host.
        provider: Whose API is behind it.
        kind: What the endpoint is to do.

    Raises:
        ValueError: If it is no URL of an endpoint; says why, without showing it.
    """
    parts = _parse(text)
    host = f"{parts.scheme}://{parts.netloc}"
    segments = [segment for segment in parts.path.split("/") if segment]
    if provider == "openai":
        return _split_openai(parts, host, "/".join(segments), kind)
    return _split_azure(parts, host, segments, kind)


def _parse(text: str) -> SplitResult:
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("it holds a space or a control character")
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    else:
        if parts.scheme in ("http", "https") and has_host:
            if parts.username is not None or parts.fragment:
                raise ValueError("it holds a user name, a password or a fragment")
            return parts
    raise ValueError("it is no URL; expected https:// and a host")


def _split_azure(
    parts: SplitResult, host: str, segments: Sequence[str], kind: EndpointKind
) -> SplitURL:
    version, doubts = _read_query(parts)
    place = segments.index("openai") if "openai" in segments else len(segments)
    # A gateway may have put something in front.
    base, rest = "/".join([host, *segments[:place]]), segments[place + 1 :]
    deployment: str | None = None
    match rest:
        case ["v1", *operation]:
            doubts += _doubt_operation(operation, kind)
            return SplitURL(f"{base}/openai/v1", None, version, doubts=doubts)
        case ["deployments"]:
            raise ValueError("no deployment follows /deployments/")
        case ["deployments", name, *operation]:
            deployment = name
            doubts += _doubt_operation(operation, kind)
        case _:
            doubts += _doubt_operation(rest, kind)
            is_known = not rest or "/".join(rest) in _EVERY_OPERATION
            if not is_known or (segments and place == len(segments)):
                doubts = (*doubts, _UNKNOWN_PATH)
                base = "/".join([host, *segments])
    return SplitURL(base, deployment, version, has_versions=True, doubts=doubts)


def _split_openai(parts: SplitResult, host: str, path: str, kind: EndpointKind) -> SplitURL:
    doubts: tuple[str, ...] = ("its query is not sent",) if parts.query else ()
    operation = next((each for each in _EVERY_OPERATION if _ends_in(path, each)), "")
    doubts += _doubt_operation([operation], kind)
    return SplitURL(f"{host}/{path.removesuffix(operation)}".rstrip("/"), doubts=doubts)


def _ends_in(path: str, operation: str) -> bool:
    return f"/{path}".endswith(f"/{operation}")


def _read_query(parts: SplitResult) -> tuple[str | None, tuple[str, ...]]:
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    version = query.pop("api-version", "") or None
    # Their values may be keys.
    return version, tuple(f"its query parameter {name!r} is not sent" for name in query)


def _doubt_operation(segments: Sequence[str], kind: EndpointKind) -> tuple[str, ...]:
    operation = "/".join(segments)
    if operation not in _EVERY_OPERATION or operation in _OPERATIONS[kind]:
        return ()
    return (f"its path ends in {operation!r}, which a pool of kind {kind!r} does not ask",)
