"""What is taken out of exceptions of SDKs and HTTP libraries before anybody keeps them."""

import anthropic
import httpx2
import openai
import pytest

from chatrouting.adapters._errors import Errors
from chatrouting.adapters._redaction import redact
from chatrouting.errors import APIConnectionError, AuthenticationError, BadRequestError

ERRORS = Errors("openai", "gpt-x")
SECRET = "sk-verysecretverysecret"  # noqa: S105  # a made-up key to look for
ODD_KEY = "0123456789abcdef"
PROMPT = "the prompt that nobody may see"


def request(headers: dict[str, str] | None = None) -> httpx2.Request:
    return httpx2.Request(
        "POST",
        "https://api.example/v1/chat/completions",
        headers=headers or {"Authorization": f"Bearer {SECRET}"},
        json={"messages": [{"role": "user", "content": PROMPT}]},
    )


def reachable(error: BaseException) -> str:
    """Everything that an exception and its chain lead to, as one text."""
    seen: set[int] = set()
    texts: list[str] = []
    left: list[object] = [error]
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, type) or len(seen) > 5000:
            continue
        seen.add(id(item))
        if isinstance(item, str | bytes):
            texts.append(str(item))
        elif isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set):
            left += item
        elif isinstance(item, BaseException):
            left += [item.__cause__, item.__context__, *item.args, vars(item)]
        elif type(item).__module__.partition(".")[0] in ("httpx2", "openai", "anthropic"):
            left += [vars(item), dict(getattr(item, "headers", {}))]
    return "\n".join(texts)


def raise_as_the_sdk_does(response: httpx2.Response) -> None:
    try:
        response.raise_for_status()
    except httpx2.HTTPStatusError:
        raise openai.BadRequestError("bad", response=response, body={"x": 1}) from None


def test_nothing_reachable_from_an_error_holds_prompt_or_key():
    """Requests keep method and URL; responses lose what leads back to the connection."""
    first = httpx2.Response(302, request=request())
    response = httpx2.Response(
        400, request=request(), json={"error": {"message": f"bad key {SECRET}"}}, history=[first]
    )
    response.extensions["x"] = request()
    with pytest.raises(BadRequestError) as caught, ERRORS.translating():
        raise_as_the_sdk_does(response)
    sdk_error = caught.value.__cause__
    assert isinstance(sdk_error, openai.BadRequestError)
    assert isinstance(sdk_error.__context__, httpx2.HTTPStatusError)
    assert sdk_error.request.method == "POST"
    assert str(sdk_error.request.url) == "https://api.example/v1/chat/completions"
    assert dict(sdk_error.response.request.headers) == {}
    assert sdk_error.response.request.content == b""
    del response, first
    told = reachable(caught.value)
    assert PROMPT not in told
    assert "Authorization" not in told
    assert SECRET not in told


def test_a_key_that_an_http_library_quotes_is_masked():
    error = httpx2.LocalProtocolError(f"Illegal header value b'Bearer {SECRET}\\n'")
    with pytest.raises(APIConnectionError) as caught, ERRORS.translating():
        raise error
    assert SECRET not in str(caught.value)
    assert SECRET not in str(error)


def test_redaction_stops_at_what_the_caller_was_handling():
    callers = httpx2.ReadError("x", request=request())
    try:
        raise callers
    except httpx2.ReadError:
        with pytest.raises(APIConnectionError), ERRORS.translating():
            raise httpx2.ConnectError("y", request=request())  # noqa: B904  # its context is the point
    assert "authorization" in callers.request.headers


def test_redaction_reaches_groups_and_survives_loops_and_bare_errors():
    member = httpx2.ReadError("x", request=request())
    group = ExceptionGroup("g", [member, httpx2.ReadError("without a request")])
    member.__context__ = group
    redact(group)
    assert dict(member.request.headers) == {}


def test_an_exception_of_another_library_is_left_as_it_is():
    class OtherError(Exception):
        request = response = "something else"

    error = OtherError("words")
    redact(error)
    assert (error.request, error.response, error.args) == (*["something else"] * 2, ("words",))


def test_an_open_response_keeps_the_stream_that_closes_it():
    stream = httpx2.ByteStream(b"x")
    response = httpx2.Response(400, request=request(), stream=stream)
    redact(openai.BadRequestError("x", response=response, body=None))
    assert response.stream is stream


KEYS = [
    pytest.param({"Authorization": f"Bearer {SECRET}"}, SECRET, id="bearer"),
    pytest.param({"Authorization": f"Bearer {ODD_KEY}"}, ODD_KEY, id="bearer of any form"),
    pytest.param({"api-key": ODD_KEY}, ODD_KEY, id="Azure"),
    pytest.param({"x-api-key": ODD_KEY}, ODD_KEY, id="Anthropic"),
    pytest.param({"x-goog-api-key": ODD_KEY}, ODD_KEY, id="Google"),
    pytest.param({"x-other": "o"}, SECRET, id="only by its form"),
]


def answer_with(key: str, headers: dict[str, str]) -> httpx2.Response:
    body = {"error": {"message": f"bad key {key}", "type": "t", "tried": [key, {key: 1}]}}
    return httpx2.Response(401, request=request(headers), json=body)


def of_openai(response: httpx2.Response) -> openai.APIStatusError:
    body = response.json()
    message = f"Error code: 401 - {body}"
    return openai.AuthenticationError(message, response=response, body=body["error"])


def of_anthropic(response: httpx2.Response) -> anthropic.APIStatusError:
    body = response.json()
    return anthropic.AuthenticationError(f"{body}", response=response, body=body)


@pytest.mark.parametrize(("headers", "key"), KEYS)
@pytest.mark.parametrize("make", [of_openai, of_anthropic])
def test_a_key_that_an_answer_repeats_is_masked_everywhere(make, headers, key):
    """In message, arguments, decoded body, and the answer's content, text and JSON."""
    response = answer_with(key, headers)
    assert key in response.text
    error = make(response)
    redact(error)
    assert error.response is response
    assert key not in reachable(error)
    assert key not in f"{error} {error!r} {error.message} {error.args} {error.body}"
    assert key not in response.text
    assert response.content.decode() == response.text
    assert response.json()["error"]["message"] == "bad key [key]"
    assert response.json()["error"]["tried"] == ["[key]", {"[key]": 1}]


def test_the_error_of_ours_does_not_repeat_the_key_either():
    error = of_openai(answer_with(ODD_KEY, {"api-key": ODD_KEY}))
    with pytest.raises(AuthenticationError) as caught, ERRORS.translating():
        raise error
    assert str(caught.value).endswith("(t): bad key [key]")


def test_what_stands_for_no_key_masks_nothing():
    """Servers that want none are often given a word."""
    error = of_openai(answer_with("unused", {"authorization": "Bearer unused"}))
    body = error.body
    redact(error)
    assert error.message.count("unused") == 3
    assert error.body is body


def test_a_body_that_is_no_text_stays_as_it_is():
    response = httpx2.Response(400, request=request(), content=b"\xff\xfe" + SECRET.encode())
    redact(openai.BadRequestError("x", response=response, body=None))
    assert response.content == b"\xff\xfe[key]"
