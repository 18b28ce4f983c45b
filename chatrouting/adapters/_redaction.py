"""Taking prompt and key out of what SDKs and HTTP libraries raise, before anybody keeps it.

Their exceptions hold the request, whose body is the prompt and whose headers are the key, and the
answer, which may repeat the key. Both SDKs are read by what their exceptions carry, so that this
file imports neither.
"""

import contextlib
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeGuard, cast

from chatrouting.errors import ChatRoutingError
from chatrouting.policies.error_body import mask_keys

_HTTP_LIBRARIES: Final = frozenset({"httpx", "httpx2"})
#: Headers by which providers are told the key.
_CREDENTIALS: Final = frozenset(
    {
        b"authorization",
        b"proxy-authorization",
        b"api-key",
        b"x-api-key",
        b"x-goog-api-key",
        b"x-amz-security-token",
    }
)
#: What is shorter may be a word: servers that want no key are often given "unused".
_SHORTEST_KEY: Final = 8
#: Most of what an exception or an answer holds, and no place for a key.
_SCALARS: Final = frozenset({type(None), bool, int, float})


def redact(error: BaseException, stop: BaseException | None = None) -> None:
    """Take prompt and key out of an exception of an SDK and of all that it came from.

    Requests are replaced by ones with the same method and URL only, and responses lose what leads
    back to their connection. In texts, decoded bodies and read contents the request's own key, and
    whatever looks like one, is masked.

    What remains: the URL with its query, headers of the answer, a body that was not read, and a
    key that an answer writes in another form than the request did.

    Args:
        error: The exception; its causes, contexts and group members are treated alike.
        stop: Where to stop: what was being handled when the call began is the caller's.
    """
    found: list[Any] = [one for one in _chain(error, stop) if not isinstance(one, ChatRoutingError)]
    requests = {id(request): request for one in found for request in _requests(one)}
    keys = {key for request in requests.values() for key in _keys(request)}
    # One for each: an exception, its cause and the answer mostly share their request.
    bare = {number: _bare(request) for number, request in requests.items()}
    bare |= {id(request): request for request in bare.values()}
    answers: list[Any] = []
    for one in found:
        with contextlib.suppress(AttributeError, RuntimeError):
            one.request = bare.get(id(one.request), one.request)
        with contextlib.suppress(AttributeError, RuntimeError):
            _strip(one.response, bare, answers)
    _mask([*found, *answers], sorted(keys, key=len, reverse=True))


def name_request(error: BaseException, answer: object) -> None:
    """Tell an HTTP library's error which answer was read, as the library's own readers do.

    Without its request nobody finds the key in its text.
    """
    if isinstance(getattr(type(error), "request", None), property):
        with contextlib.suppress(AttributeError, RuntimeError):
            cast("Any", error).request = cast("Any", answer).request


def _chain(error: BaseException, stop: BaseException | None) -> Iterator[BaseException]:
    seen = {id(stop)}
    left: list[BaseException | None] = [error]
    while left:
        current = left.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        left += [current.__cause__, current.__context__]
        if _is_group(current):
            left += current.exceptions


def _requests(error: Any) -> Iterator[Any]:
    """Find the requests of an exception; some raise where there is none."""
    holders: tuple[Any, ...] = (error, getattr(error, "response", None))
    for holder in holders:
        try:
            request = holder.request
        except (AttributeError, RuntimeError):
            continue
        if _is_of_http_library(request):
            yield request


def _keys(request: Any) -> Iterator[str]:
    for name, value in request.headers.raw:  # to look one up decodes them all
        if name.lower() in _CREDENTIALS:
            key = value.decode(request.headers.encoding).rpartition(" ")[2]
            if len(key) >= _SHORTEST_KEY:
                yield key


def _strip(response: Any, bare: Mapping[int, Any], answers: list[Any]) -> None:
    """Take off an answer what leads back to its connection; it and those before go to `answers`."""
    if not _is_of_http_library(response):
        return
    request = bare.get(id(response.request))
    if request is response.request:
        return  # another exception holds this answer too
    for earlier in response.history:
        _strip(earlier, bare, answers)
    if request is None:
        request = _bare(response.request)
    response.request = request
    response.next_request = None
    response.extensions = {}
    if response.is_closed:
        # An open one still needs its stream to be closed by.
        response.stream = request.stream
    answers.append(response)


def _mask(holders: Iterable[object], keys: Iterable[str]) -> None:
    """Mask keys in what exceptions and answers hold, without touching what holds none."""
    texts: list[str] = []
    for holder in holders:
        _collect([*vars(holder).values(), *getattr(holder, "args", ())], texts)
    # Hardly any error repeats a key: one look at all texts together spares one at each of them.
    together = "\n".join(dict.fromkeys(texts))
    if mask_keys(together, keys) == together:
        return
    for holder in holders:
        if isinstance(holder, BaseException):
            # Some HTTP libraries quote a header that they cannot send.
            holder.args = _masked(holder.args, keys)
        for name, value in list(vars(holder).items()):
            masked = _masked(value, keys)
            if masked is not value:
                vars(holder)[name] = masked


def _collect(values: Iterable[Any], texts: list[str]) -> None:
    """Add all texts that `_masked` looks at."""
    for value in values:
        if type(value) in _SCALARS:
            continue
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, bytes):
            texts.append(value.decode("utf-8", "surrogateescape"))
        elif type(value) is dict:
            entries = cast("Mapping[Any, Any]", value)
            _collect(entries, texts)
            _collect(entries.values(), texts)
        elif type(value) in (list, tuple):
            _collect(value, texts)


def _masked(value: Any, keys: Iterable[str]) -> Any:
    """Return a value with masked keys, the value itself if there are none in it."""
    if isinstance(value, str):
        return mask_keys(value, keys)
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        masked = mask_keys(text, keys)
        return value if masked == text else masked.encode("utf-8", "surrogateescape")
    if type(value) in (list, tuple):
        items = [_masked(item, keys) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    if type(value) is dict:
        entries = cast("Mapping[Any, Any]", value)
        old = [part for item in entries.items() for part in item]
        new = _masked(old, keys)
        return entries if new is old else dict(zip(new[::2], new[1::2], strict=True))
    return value


def _bare(request: Any) -> Any:
    library = sys.modules[_library(request)]
    # With a stream of its own it gets no headers, and is made in a third of the time.
    bare = type(request)(request.method, request.url, stream=library.ByteStream(b""))
    bare.read()
    return bare


def _is_of_http_library(value: object) -> bool:
    return _library(value) in _HTTP_LIBRARIES


def _library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)
