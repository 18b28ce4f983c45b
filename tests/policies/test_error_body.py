"""Reading error bodies of every shape that providers and their imitators send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrouting.policies.error_body import ErrorFacts, holds_error, read_error_body, shorten


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        pytest.param(
            {"error": {"message": "m", "type": "requests", "code": "rate_limit_exceeded"}},
            ErrorFacts("rate_limit_exceeded", "requests", "m"),
            id="OpenAI",
        ),
        pytest.param(
            {"message": "m", "type": "invalid_request_error", "code": None},
            ErrorFacts("", "invalid_request_error", "m"),
            id="OpenAI's inner object, as its SDK cuts it out",
        ),
        pytest.param(
            {
                "type": "error",
                "error": {
                    "type": "rate_limit_error",
                    "message": "m",
                    "details": {"error_code": "enforced_spend_limit_reached"},
                },
            },
            ErrorFacts("enforced_spend_limit_reached", "rate_limit_error", "m"),
            id="Anthropic",
        ),
        pytest.param(
            [{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}],
            ErrorFacts("", "INVALID_ARGUMENT", "m", 400),
            id="Gemini's list",
        ),
        pytest.param(
            {"detail": [{"loc": ["body", "messages"], "msg": "bad", "input": "the prompt"}]},
            ErrorFacts("", "", "body.messages: bad"),
            id="FastAPI's list",
        ),
        pytest.param({"detail": "Not found"}, ErrorFacts(message="Not found"), id="FastAPI"),
        pytest.param({"error": "no such model"}, ErrorFacts(message="no such model"), id="Ollama"),
        pytest.param(
            {"error": "invalid_grant", "error_description": "expired"},
            ErrorFacts("invalid_grant", "", "expired"),
            id="OAuth",
        ),
        pytest.param("plain words", ErrorFacts(message="plain words"), id="text"),
        pytest.param(
            {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
            ErrorFacts("", "BadRequestError", "m", 400),
            id="vLLM, flat",
        ),
        pytest.param(
            {"statusCode": 401, "message": "m"}, ErrorFacts("", "", "m", 401), id="Azure 401"
        ),
        pytest.param(
            {
                "error": {
                    "code": None,
                    "message": "m",
                    "status": 400,
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            },
            ErrorFacts("ResponsibleAIPolicyViolation", "", "m", 400),
            id="Azure content filter",
        ),
        pytest.param(
            {"error": {"code": "502", "message": "m", "metadata": {}}},
            ErrorFacts("", "", "m", 502),
            id="OpenRouter",
        ),
        pytest.param(
            {"object": "error", "message": {"detail": [{"loc": "x", "msg": "bad"}]}},
            ErrorFacts(message="bad"),
            id="Mistral",
        ),
        pytest.param(
            {"type": "error", "code": "server_error", "message": "m", "param": None},
            ErrorFacts("server_error", "", "m"),
            id="event of the Responses API",
        ),
        pytest.param({}, ErrorFacts(), id="empty"),
        pytest.param(None, ErrorFacts(), id="none"),
        pytest.param([], ErrorFacts(), id="empty list"),
        pytest.param({"error": None, "message": "m"}, ErrorFacts(message="m"), id="null error"),
    ],
)
def test_every_shape_of_error_body_is_read(body, facts):
    """The shapes of non-standard bodies of the error trees, and of the dialects' `error_shape`."""
    assert read_error_body(body) == facts


def test_messages_are_short_and_hold_no_key_and_no_echo():
    assert shorten("key sk-abcdefghijklmnop is wrong") == "key [key] is wrong"
    assert shorten("sent Bearer abcdef") == "sent [key]"
    assert (
        shorten("bad value [type=x, input_value='my prompt', more]") == "bad value [type=x, [...]"
    )
    assert shorten("{'msg': 'bad', 'input': 'my prompt'}") == "{'msg': 'bad', [...]"
    assert shorten("Illegal header value b'abc'") == "Illegal header value [key]"
    assert shorten(" <!DOCTYPE html><p>Bad gateway") == ""
    assert len(shorten("x" * 1000)) == 300


@pytest.mark.parametrize(
    ("body", "is_error"),
    [
        pytest.param({"error": {"message": "m"}}, True, id="error object"),
        pytest.param([{"error": {"message": "m"}}], True, id="list"),
        pytest.param({"object": "error", "message": "m"}, True, id="flat"),
        pytest.param({"type": "error", "message": "m"}, True, id="event"),
        pytest.param({"error": None, "choices": []}, False, id="null error"),
        pytest.param([], False, id="empty list"),
        pytest.param("error", False, id="text"),
    ],
)
def test_an_error_dressed_as_success_is_recognised(body, is_error):
    assert holds_error(body) is is_error


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "type", "detail", "details", "msg", "loc"]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_body_makes_the_reader_raise(body):
    facts = read_error_body(body)
    assert len(facts.message) <= 300
