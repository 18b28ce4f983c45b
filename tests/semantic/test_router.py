"""The semantic router as a chat client: what it asks, what it tells, what it closes."""

import logging
import pickle

import anyio
import pytest

from chatrouting import (
    AttemptOutcome,
    ChatMessage,
    DataContent,
    OrderedFailoverChatClient,
    RoutingChatClient,
    RoutingContext,
    RoutingHints,
    SemanticRoutingChatClient,
    as_messages,
)
from chatrouting import ChatOptions as Options
from chatrouting.client import ClosingClient
from chatrouting.errors import (
    ClientClosedError,
    ConfigurationError,
    EmbeddingError,
    RateLimitError,
    RequestTimeoutError,
)
from chatrouting.semantic import (
    DecisionReason,
    SemanticDecision,
    decision_of,
    last_user_text,
    last_user_texts,
)
from chatrouting.testing import (
    FakeEmbeddingGenerator,
    ScriptedChatClient,
    check_chat_client,
    fails,
    finishes,
    waits,
    waits_forever,
)

IMAGE = DataContent(b"...", "image/png")


def near(score):
    return pytest.approx(score, abs=1e-6)


# --- requests -------------------------------------------------------------------------------------


async def test_requests_go_where_similar_utterances_belong(build, answer, plane):
    """[routing 98] The utterances are embedded once, whatever comes."""
    router = build(code=["east", "north-east"], chat=["north"])

    responses = [await answer(router, text) for text in ["nearly east", "east", "north"]]

    assert [response.text for response in responses] == ["code", "code", "chat"]
    assert plane.calls[0] == ("east", "north-east", "north")
    assert plane.calls[1:] == [("nearly east",), ("east",), ("north",)]


async def test_both_requests_return_the_clients_own_response(plane):
    """[routing 98] Inside another router, so that no attempts are added."""
    client = ScriptedChatClient("hello")
    seen = []

    async def keep(context, attempt, is_terminal):
        seen.append(attempt.route)

    router = SemanticRoutingChatClient(
        plane, {"a": (client, ["east"])}, ScriptedChatClient(), on_routing_update=keep
    )
    outer = RoutingChatClient(lambda _: router, routes=[router])

    first, second = await outer.get_response("east"), await outer.get_response("east")

    assert first == second
    assert seen == ["a", "a"]
    assert [attempt.children[0].route for attempt in first.attempts] == ["a"]


async def test_a_score_below_the_threshold_goes_to_the_default(build, answer):
    """[routing 100]"""
    router = build(code=["east"], score_threshold=0.81)

    response = await answer(router, "nearly east")

    assert response.text == "default"
    assert response.attempts[0].route == "default"


@pytest.mark.parametrize("threshold", [0.8, 0.6, 1.0, -1.0])
async def test_a_score_equal_to_the_threshold_is_enough(build, answer, threshold):
    """[routing 102, BR-89] Although 0.8 in float32 is not 0.8."""
    query = {0.8: "nearly east", 0.6: "north", 1.0: "far east", -1.0: "west"}[threshold]
    utterance = "nearly east" if threshold == 0.6 else "east"
    router = build(code=[utterance], score_threshold=threshold)

    assert (await answer(router, query)).text == "code"


async def test_the_best_route_is_held_to_its_own_threshold(build):
    """Another route does not step in for it, even if it would reach its own."""
    router = build(code=(["east"], 0.9), chat=(["north"], 0.1))

    decision = await router.explain("nearly east")

    assert decision.route == "default"
    assert (decision.best, decision.threshold) == ("code", 0.9)


@pytest.mark.parametrize(("margin", "route"), [(0.0, "code"), (0.2, "code"), (0.21, "default")])
async def test_a_route_without_a_clear_lead_goes_to_the_default(build, margin, route):
    """0.8 against 0.6; a lead equal to the margin is enough."""
    router = build(code=["east"], chat=["north"], margin=margin)

    decision = await router.explain("nearly east")

    assert decision.route == route
    assert decision.lead == near(0.2)
    expected = DecisionReason.MATCHED if route == "code" else DecisionReason.NO_CLEAR_LEAD
    assert decision.reason is expected


async def test_a_route_without_a_rival_leads(build):
    router = build(code=["east"], margin=2.0)

    assert (await router.explain("east")).route == "code"


# --- the text that counts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="no message"),
        pytest.param([{"role": "system", "content": "east"}], id="no user"),
        pytest.param(" \n", id="blank"),
        pytest.param([ChatMessage("user", [IMAGE])], id="an image"),
        pytest.param(["east", ChatMessage("user", [IMAGE])], id="an image last"),
    ],
)
async def test_without_text_the_default_is_asked_and_nothing_is_embedded(
    build, answer, plane, messages
):
    """[routing 103] Not even the utterances."""
    router = build(code=["east"])

    assert (await answer(router, messages)).text == "default"
    assert (await router.explain(messages)).reason is DecisionReason.NO_TEXT
    assert plane.calls == []


async def test_the_last_message_of_the_user_counts(build, answer, plane):
    """[routing 103]"""
    router = build(code=["east"], chat=["north"])
    conversation = [
        {"role": "user", "content": "east"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "nor"}, {"type": "text", "text": "th"}],
        },
        {"role": "assistant", "content": "east"},
    ]

    assert (await answer(router, iter(conversation))).text == "chat"
    assert plane.calls[-1] == ("north",)


@pytest.mark.parametrize(
    ("count", "text"), [(1, "three"), (2, "two\nthree"), (9, "one\ntwo\nthree")]
)
def test_the_last_texts_of_the_user_can_count(count, text):
    said = as_messages(
        [
            "one",
            {"role": "assistant", "content": "a long answer"},
            "two",
            "three",
        ]
    )

    assert last_user_texts(count)(said) == text


def test_blank_texts_are_left_out_of_the_last_ones():
    said = as_messages(["one", " ", ChatMessage("user", [IMAGE])])

    assert last_user_texts(3)(said) == "one"
    assert last_user_texts(1)(said) == ""
    assert last_user_texts(2)(()) == ""
    assert last_user_text(()) is None


def test_no_last_text_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="count is 0"):
        last_user_texts(0)


async def test_the_text_is_found_by_whatever_was_given(build, plane):
    router = build(code=["east"], extract_text=lambda messages: messages[0].author_name)

    decision = await router.explain([ChatMessage("user", "north", author_name="east")])

    assert decision.route == "code"
    assert plane.calls[-1] == ("east",)


# --- what it tells --------------------------------------------------------------------------------


async def test_hooks_and_the_selection_tell_the_decision(build, answer):
    """[BR-90] Of each request, with the score of every route."""
    told = []

    def listen(context, attempt, is_terminal):
        assert attempt.detail is decision_of(context)
        told.append((decision_of(context), context.selection, attempt.route, is_terminal))

    router = build(code=["east"], chat=["north"], on_routing_update=listen)
    await answer(router, "nearly east")

    [(decision, selection, route, is_terminal)] = told
    assert decision == await router.explain("nearly east")
    assert decision.scores == {"code": near(0.8), "chat": near(0.6)}
    assert selection.client == route == "code"
    assert selection.reason == "matched: 'code' scores 0.800, threshold 0.000, lead 0.200"
    assert is_terminal


async def test_a_record_that_travels_keeps_the_scores(build):
    response = await build(code=["east"], chat=["north"]).get_response("nearly east")
    [attempt] = pickle.loads(pickle.dumps(response.attempts))  # noqa: S301  # our own

    assert attempt.detail == response.attempts[0].detail
    assert attempt.detail.scores == {"code": near(0.8), "chat": near(0.6)}


def test_a_context_without_a_decision_has_none():
    assert decision_of(RoutingContext("Hi")) is None


async def test_there_is_one_log_record_and_no_word_of_the_conversation(build, answer, caplog):
    router = build(code=["east"], chat=["nowhere"], name="front")
    with caplog.at_level(logging.DEBUG, "chatrouting.semantic"):
        response = await answer(router, "nearly east")

    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    assert "semantic.decision router=front route=code reason=matched best=code" in record.message
    assert response.attempts[0].request_id in record.message
    assert record.message.endswith("scores: code=0.800 chat=none")
    assert "east" not in record.message


async def test_explaining_asks_no_client(build):
    router = build(code=["east"], score_threshold=0.9)

    decision = await router.explain("nearly east")

    assert all(client.calls == [] for client in router.routes.values())
    assert decision.route == "default"
    assert decision.reason is DecisionReason.BELOW_THRESHOLD
    assert str(decision) == "below_threshold: 'code' scores 0.800, threshold 0.900, lead none"


@pytest.mark.parametrize(
    ("text", "threshold", "reason"),
    [
        ("east", 0.3, DecisionReason.MATCHED),
        ("north", 0.3, DecisionReason.BELOW_THRESHOLD),
        ("nowhere", 0.3, DecisionReason.NO_MATCH),
        ("", 0.3, DecisionReason.NO_TEXT),
    ],
)
async def test_there_is_one_kind_of_answer(build, text, threshold, reason):
    """[BR-90] With every field, whatever the reason; in all forms of asking."""
    router = build(code=["east"], score_threshold=threshold)

    decision: SemanticDecision = await router.explain(text)
    (same,) = await router.explain_many([text])

    assert decision == same
    assert decision.reason is reason
    assert list(decision.scores) == ["code"]
    assert decision.scores["code"] == decision.score
    assert (decision.score is None) == (reason in (DecisionReason.NO_MATCH, DecisionReason.NO_TEXT))
    assert str(decision).startswith(reason.value)
    assert decision.error is None


async def test_a_decision_travels_and_can_be_read(build):
    decision = await build(code=["east"], chat=["north"], top_k=2).explain("east")

    assert pickle.loads(pickle.dumps(decision)) == decision  # noqa: S301  # our own
    assert repr(decision.scores) == "{'code': 1.0, 'chat': 0.0}"
    assert len(decision.scores) == 2
    with pytest.raises(KeyError):
        decision.scores["elsewhere"]


async def test_scores_stay_in_their_range(build):
    """float32 makes some cosines of equal vectors larger than 1."""
    generator = FakeEmbeddingGenerator(dimension=50)
    texts = [f"a text with {number}" for number in range(200)]
    router = build(generator, code=texts, score_aggregation="max")

    assert max(decision.score for decision in await router.explain_many(texts)) == 1.0


# --- as a router ----------------------------------------------------------------------------------


async def test_it_keeps_the_contract_of_clients():
    """Warm and cold: the request is under way while its text is embedded."""

    def around(client):
        return SemanticRoutingChatClient(
            FakeEmbeddingGenerator(), [(client, ["Say hello."])], client
        )

    def leaf(router):
        return router.routes["default"]

    checked = await check_chat_client(
        lambda: around(ScriptedChatClient("Hel", "lo", finishes())),
        make_waiting_client=lambda: around(ScriptedChatClient("Hel", waits_forever())),
        count_requests=lambda router: len(leaf(router).calls),
        count_open=lambda router: leaf(router).pending,
    )

    assert len(checked) == 19


def test_it_is_a_router_and_answers_for_its_class(build):
    """[routing 16]"""
    router = build(code=["east"])

    assert router.get_service(SemanticRoutingChatClient) is router
    assert router.get_service(RoutingChatClient) is router
    assert router.get_service(ScriptedChatClient) is None


async def test_it_fails_over_to_nobody(build, answer):
    router = SemanticRoutingChatClient(
        FakeEmbeddingGenerator(),
        [(ScriptedChatClient(fails(RateLimitError)), ["x"])],
        ScriptedChatClient("default"),
        score_threshold=-1,
    )

    with pytest.raises(RateLimitError):
        await answer(router, "x")


async def test_a_route_may_be_a_router_and_so_may_what_is_around_it(plane, answer):
    inner = OrderedFailoverChatClient(
        [ScriptedChatClient(fails(RateLimitError)), ScriptedChatClient("second")]
    )
    router = SemanticRoutingChatClient(plane, {"code": (inner, ["east"])}, inner)
    outer = OrderedFailoverChatClient({"semantic": router})

    response = await answer(outer, "east")

    assert response.text == "second"
    [attempt] = response.attempts
    assert attempt.route == "semantic"
    [child] = attempt.children
    assert child.route == "code"
    assert [each.outcome for each in child.children] == [
        AttemptOutcome.FAILED,
        AttemptOutcome.COMPLETED,
    ]


async def test_a_subclass_may_choose_otherwise(plane, answer):
    class Careful(SemanticRoutingChatClient):
        async def select_client(self, context):
            selection = await super().select_client(context)
            decision = decision_of(context)
            return "default" if decision.score < 0.9 else selection

    router = Careful(
        plane, {"code": (ScriptedChatClient("code"), ["east"])}, ScriptedChatClient("no")
    )

    assert (await answer(router, "nearly east")).text == "no"
    assert (await answer(router, "east")).text == "code"


# --- embedding errors -----------------------------------------------------------------------------


async def test_an_embedding_error_fails_the_request(build, answer):
    """[routing 110] Unchanged."""
    error = RateLimitError("busy")
    router = build(FakeEmbeddingGenerator(fails(error)), code=["east"])

    with pytest.raises(RateLimitError) as raised:
        await answer(router, "east")

    assert raised.value is error
    assert router.routes["default"].calls == []


@pytest.mark.parametrize("at", ["the utterances", "the query"])
async def test_an_embedding_error_may_lead_to_the_default(build, answer, caplog, at):
    """[routing 110]"""
    error = RateLimitError("busy with east")
    scripts = [fails(error)] if at == "the utterances" else [[], fails(error)]
    router = build(
        FakeEmbeddingGenerator.per_call(*scripts, dimension=2),
        code=["east"],
        on_embedding_error="default",
        name="front",
    )

    assert (await answer(router, "east")).text == "default"

    [record] = caplog.records
    assert record.message == "semantic.embedding_failed router=front error=RateLimitError"
    assert (await answer(router, "east")).text == "code"


async def test_the_decision_holds_the_error_without_its_frames(build):
    error = RateLimitError("busy")
    router = build(FakeEmbeddingGenerator(fails(error)), code=["x"], on_embedding_error="default")

    decision = await router.explain("x")

    assert decision.reason is DecisionReason.EMBEDDING_ERROR
    assert decision.error is error
    assert error.__traceback__ is None


async def test_a_mistake_in_the_stack_is_never_passed_over(build, answer):
    error = ConfigurationError("no model is named")
    router = build(FakeEmbeddingGenerator(fails(error)), code=["x"], on_embedding_error="default")

    with pytest.raises(ConfigurationError):
        await answer(router, "x")


async def test_many_texts_raise_whatever_the_policy(build):
    router = build(
        FakeEmbeddingGenerator(fails(RateLimitError)), code=["x"], on_embedding_error="default"
    )

    with pytest.raises(RateLimitError):
        await router.explain_many(["x"])


async def test_a_cancelled_caller_gets_no_default_client(build):
    """Even if the generator makes an error of its own of the cancellation."""

    class Translating:
        async def generate(self, texts):
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class() as cancelled:
                raise EmbeddingError("interrupted") from cancelled

        async def aclose(self):
            return

    router = build(Translating(), code=["x"], on_embedding_error="default")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(router.get_response, "x")
            await anyio.wait_all_tasks_blocked()
            scope.cancel()

    assert router.routes["default"].calls == []


@pytest.mark.virtual_time
@pytest.mark.parametrize("policy", ["raise", "default"])
async def test_the_timeout_of_the_request_counts_while_embedding(build, answer, policy):
    router = build(FakeEmbeddingGenerator(waits(60)), code=["x"], on_embedding_error=policy)

    with pytest.raises(RequestTimeoutError):
        await answer(router, "x", Options(routing=RoutingHints(timeout=1)))
    assert anyio.current_time() < 2
    assert router.routes["default"].calls == []


@pytest.mark.virtual_time
async def test_cancelling_a_request_that_waits_for_the_embedding_ends_it(build):
    router = build(FakeEmbeddingGenerator(waits_forever()), code=["x"])

    with anyio.move_on_after(1) as scope:
        await router.get_response("x")

    assert scope.cancelled_caught


# --- closing --------------------------------------------------------------------------------------


async def test_closing_twice_closes_generator_and_clients_once_each(build, plane):
    """[routing 101]"""
    router = build(code=["east"], chat=["north"])

    await router.aclose()
    await router.aclose()

    assert plane.close_count == 1
    assert [client.close_count for client in router.routes.values()] == [1, 1, 1]


async def test_a_default_client_that_has_utterances_too_is_closed_once(plane):
    """[routing 101]"""
    client = ScriptedChatClient()

    async with SemanticRoutingChatClient(plane, [(client, ["east"]), (client, ["west"])], client):
        assert client.close_count == 0

    assert client.close_count == 1


async def test_a_client_that_embeds_as_well_is_closed_once():
    class Both(ClosingClient):
        close_count = 0

        async def generate(self, texts):
            return [[1.0, 0.0] for _ in texts]

        async def get_response(self, messages, options=None):
            raise AssertionError

        def get_streaming_response(self, messages, options=None):
            raise AssertionError

        def get_service(self, service_type, service_key=None):
            return None

        async def aclose(self):
            self.close_count += 1

    both = Both()

    await SemanticRoutingChatClient(both, [(both, ["x"])], ScriptedChatClient()).aclose()

    assert both.close_count == 1


async def test_closing_may_leave_all_of_them_open(build, plane):
    """[routing 101]"""
    router = build(code=["east"], leave_open=True)

    await router.aclose()

    assert plane.close_count == 0
    assert [client.close_count for client in router.routes.values()] == [0, 0]


async def test_all_are_closed_even_if_one_fails(plane):
    client = ScriptedChatClient(close_error=RuntimeError("stuck"))
    router = SemanticRoutingChatClient(plane, [(client, ["east"])], ScriptedChatClient())

    with pytest.raises(RuntimeError, match="stuck"):
        await router.aclose()

    assert plane.close_count == 1
    assert router.routes["default"].close_count == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda router: router.get_response("x"),
        lambda router: router.explain("x"),
        lambda router: router.explain_many(["x"]),
        lambda router: router.warm_up(),
        lambda router: router.add_utterances("code", ["y"]),
        lambda router: router.remove_utterances("code", ["y"]),
        lambda router: router.save("nowhere"),
        lambda router: router.load("nowhere"),
        lambda router: router.fit_thresholds(["x"], ["code"]),
    ],
)
async def test_a_closed_router_is_not_used(build, use):
    router = build(code=["east"], name="front")
    await router.aclose()

    with pytest.raises(ClientClosedError, match="front"):
        await use(router)
