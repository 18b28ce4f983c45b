"""Embeddings over a pool: real SDK clients on several regions, batches, and vectors that differ."""

from array import array

import anyio
import pytest

from chatrouting.client import EmbeddingGenerator
from chatrouting.errors import (
    APIConnectionError,
    BadRequestError,
    ClientClosedError,
    ConfigurationError,
    InternalServerError,
    NoEndpointAvailableError,
    PoolExhaustedError,
    RateLimitError,
    RefusedLocallyError,
    ResponseValidationError,
)
from chatrouting.pool import (
    Endpoint,
    EndpointPool,
    EndpointStatus,
    PooledEmbeddingGenerator,
    PoolPolicy,
)
from chatrouting.pool.sdk import embedding_generators
from chatrouting.testing.provider_server import Gate, Reply

TIERS = {"eastus": {"priority": 1}, "westus": {"priority": 2}}


def vectors_of(length):
    """Answer with vectors of another length than the server's own."""

    def answer(request):
        items = [
            {"index": index, "embedding": [1.0] * length}
            for index, _ in enumerate(request.body["input"])
        ]
        return Reply(body={"object": "list", "data": items})

    return answer


def states(pool):
    return {state.id: state for state in pool.snapshot()}


@pytest.fixture
def embed(serve):
    """Return `serve` for pools of embedding generators."""

    def serving(replies, **settings):
        return serve(replies, clients=embedding_generators, **settings)

    return serving


async def test_texts_become_vectors_in_order(anyio_backend, embed):
    async with embed({"eastus": Reply(), "westus": Reply()}) as regions:
        generator = PooledEmbeddingGenerator(regions.pool)
        one, two, again = await generator.generate(["one", "two", "one"])

        assert isinstance(generator, EmbeddingGenerator)
        assert generator.pool is regions.pool
        assert one == again != two
        assert (generator.dimension, regions.in_flight) == (8, 0)


async def test_large_batches_are_split_over_the_members(anyio_backend, embed):
    """2,048 inputs a call; no texts are no call.

    [pools 64]
    """
    texts = [f"{number}" for number in range(5000)]
    async with embed({"eastus": [Reply()] * 9, "westus": [Reply()] * 9}) as regions:
        generator = PooledEmbeddingGenerator(regions.pool)
        vectors = await generator.generate(iter(texts))
        (last,) = await generator.generate(["4999"])
        assert await generator.generate([]) == []

        sizes = [
            len(request.body["input"])
            for server in regions.servers.values()
            for request in server.requests
        ]
        assert sorted(sizes) == [1, 904, 2048, 2048]
        assert (len(vectors), vectors[-1]) == (5000, last)


async def test_a_failing_member_is_followed_by_another(anyio_backend, embed):
    """[pools 50]."""
    async with embed({"eastus": Reply.error(429), "westus": Reply()}, facts=TIERS) as regions:
        await PooledEmbeddingGenerator(regions.pool).generate(["text"])

        assert regions.counts == {"eastus": 1, "westus": 1}
        assert states(regions.pool)["EASTUS"].consecutive_429s == 1
        assert regions.in_flight == 0


async def test_a_request_fault_is_raised(anyio_backend, embed):
    """[pools 51]."""
    async with embed({"eastus": Reply.error(400), "westus": Reply()}, facts=TIERS) as regions:
        with pytest.raises(BadRequestError):
            await PooledEmbeddingGenerator(regions.pool).generate(["text"])

        assert regions.counts == {"eastus": 1, "westus": 0}


@pytest.mark.parametrize(
    "policy", [PoolPolicy(), PoolPolicy.resilient()], ids=["default", "rotate"]
)
async def test_vectors_of_another_length_are_a_fault_of_the_member(anyio_backend, embed, policy):
    """Mixing two models' vectors is corruption: the member is left out as one with a wrong key.

    [pools 11] [pools B3]
    """
    replies = {"eastus": vectors_of(3), "westus": [Reply()] * 9}
    async with embed(replies, facts=TIERS, policy=policy) as regions:
        generator = PooledEmbeddingGenerator(regions.pool, dimension=8)
        if policy.member_fault == "rotate":
            await generator.generate(["text"])
        else:
            with pytest.raises(ResponseValidationError, match="length 3; expected 8"):
                await generator.generate(["text"])
        await generator.generate(["text"])

        assert regions.counts["eastus"] == 1
        assert states(regions.pool)["EASTUS"].status is EndpointStatus.PARKED


async def test_the_first_vectors_set_the_length(anyio_backend, embed):
    replies = {"eastus": [Reply(), Reply.error(503)], "westus": vectors_of(3)}
    async with embed(replies, facts=TIERS) as regions:
        generator = PooledEmbeddingGenerator(regions.pool)
        await generator.generate(["text"])
        with pytest.raises(ResponseValidationError, match="'WESTUS' gave vectors of length 3"):
            await generator.generate(["text"])


class Vectors:
    """A generator of one's own: gives what it is told, or raises it."""

    def __init__(self, *given):
        self.given = list(given)

    async def generate(self, texts):
        given = self.given.pop(0)
        if isinstance(given, BaseException):
            raise given
        return given

    async def aclose(self):
        self.given.clear()


def pool_of(*generators, **settings):
    members = {
        Endpoint(f"{number}", priority=number): each for number, each in enumerate(generators, 1)
    }
    return EndpointPool(members, clock=anyio.current_time, **settings)


VECTOR = array("f", [1.0, 2.0])


async def test_too_few_vectors_are_no_answer(anyio_backend):
    pool = pool_of(Vectors([VECTOR]), Vectors([VECTOR, VECTOR]))
    assert len(await PooledEmbeddingGenerator(pool).generate(["a", "b"])) == 2


async def test_vectors_of_several_lengths_are_no_answer(anyio_backend):
    pool = pool_of(Vectors([VECTOR, array("f", [1.0])]))
    with pytest.raises(ResponseValidationError, match="length 1; expected 2"):
        await PooledEmbeddingGenerator(pool).generate(["a", "b"])


async def test_refusals_and_settings_are_no_failures(anyio_backend):
    """A refusal goes on to the next member, a wrong setting nowhere."""
    refusal = NoEndpointAvailableError("no")
    pool = pool_of(Vectors(refusal, refusal), Vectors([VECTOR], RefusedLocallyError("last")))
    generator = PooledEmbeddingGenerator(pool)
    assert await generator.generate(["a"]) == [VECTOR]
    with pytest.raises(RefusedLocallyError, match="last"):
        await generator.generate(["a"])

    final = RefusedLocallyError("stop", fallback_allowed=False)
    wrong = pool_of(Vectors(final, ConfigurationError("wrong")), Vectors())
    for error in (RefusedLocallyError, ConfigurationError):
        with pytest.raises(error):
            await PooledEmbeddingGenerator(wrong).generate(["a"])

    assert all(state.in_flight == 0 for state in (*pool.snapshot(), *wrong.snapshot()))
    assert all(state.status is EndpointStatus.READY for state in wrong.snapshot())


async def test_a_failure_is_raised_rather_than_a_later_refusal(anyio_backend):
    pool = pool_of(Vectors(InternalServerError("no")), Vectors(RefusedLocallyError("full")))
    with pytest.raises(InternalServerError), anyio.fail_after(1):
        await PooledEmbeddingGenerator(pool).generate(["a"])


async def test_a_refused_pool_of_one_raises_the_refusal(anyio_backend):
    with pytest.raises(RefusedLocallyError):
        await PooledEmbeddingGenerator(pool_of(Vectors(RefusedLocallyError("no")))).generate(["a"])


@pytest.mark.virtual_time
async def test_a_pool_of_one_asks_again(anyio_backend):
    """[pools 57]."""
    pool = pool_of(Vectors(RateLimitError("no", status_code=429, retry_after=5), [VECTOR]))
    began = anyio.current_time()
    assert await PooledEmbeddingGenerator(pool).generate(["a"]) == [VECTOR]
    assert 5 <= anyio.current_time() - began <= 8


async def test_a_cancellation_that_a_member_makes_up_is_a_failure(anyio_backend):
    if anyio_backend[0] == "trio":
        pytest.skip("only asyncio lets anything raise a cancellation")
    cancelled = anyio.get_cancelled_exc_class()
    pool = pool_of(Vectors(cancelled()), Vectors([VECTOR]))
    assert await PooledEmbeddingGenerator(pool).generate(["a"]) == [VECTOR]

    with pytest.raises(APIConnectionError):
        await PooledEmbeddingGenerator(pool_of(Vectors(*[cancelled()] * 9))).generate(["a"])


@pytest.mark.parametrize("makes", ["lets it through", "makes an error of it"])
async def test_a_cancelled_call_gives_its_ticket_back(anyio_backend, makes):
    """[pools B11]."""

    class Waiting(Vectors):
        async def generate(self, texts):
            try:
                await anyio.sleep_forever()
            except BaseException as error:
                if makes == "lets it through":
                    raise
                raise InternalServerError("gone") from error

    pool = pool_of(Waiting(), Vectors([VECTOR]))
    async with anyio.create_task_group() as group:
        group.start_soon(PooledEmbeddingGenerator(pool).generate, ["a"])
        await anyio.wait_all_tasks_blocked()
        assert pool.snapshot()[0].in_flight == 1
        group.cancel_scope.cancel()

    assert [state.in_flight for state in pool.snapshot()] == [0, 0]
    assert pool.snapshot()[0].status is EndpointStatus.READY


async def test_a_call_that_is_thrown_away_gives_its_ticket_back(anyio_backend):
    """A coroutine that nobody awaits any longer, as when an event loop is shut down."""

    class Waiting(Vectors):
        async def generate(self, texts):
            await Forever()

    class Forever:
        def __await__(self):
            yield

    for limit in (60.0, None):
        member = Endpoint("a", timeout=limit)
        policy = PoolPolicy(total_budget=None)
        pool = EndpointPool({member: Waiting()}, policy=policy, clock=anyio.current_time)
        call = PooledEmbeddingGenerator(pool).generate(["a"])
        call.send(None)
        assert pool.snapshot()[0].in_flight == 1
        call.close()
        await anyio.sleep(0.01)
        assert pool.snapshot()[0].in_flight == 0


@pytest.mark.virtual_time(autojump_threshold=0.02)
async def test_a_slow_member_is_left_for_another(anyio_backend, embed):
    """[pools 54]."""
    facts = {"eastus": {"priority": 1, "timeout": 3}, "westus": {"priority": 2}}
    replies = {"eastus": Reply(gates={"headers": Gate()}), "westus": Reply()}
    async with embed(replies, facts=facts) as regions:
        await PooledEmbeddingGenerator(regions.pool).generate(["text"])

        assert states(regions.pool)["EASTUS"].status is EndpointStatus.FAULTED


async def test_an_exhausted_pool_says_when_to_come_back(anyio_backend, embed):
    policy = PoolPolicy(when_all_cooling="raise")
    async with embed(
        {"eastus": Reply.error(429, retry_after=40)} | {"westus": Reply.error(429, retry_after=50)},
        policy=policy,
    ) as regions:
        generator = PooledEmbeddingGenerator(regions.pool)
        with pytest.raises(RateLimitError):
            await generator.generate(["text"])
        with pytest.raises(PoolExhaustedError) as caught:
            await generator.generate(["text"])

        assert caught.value.retry_after == pytest.approx(40, abs=5)


async def test_what_is_no_list_of_texts_is_refused(anyio_backend):
    generator = PooledEmbeddingGenerator(pool_of(Vectors()))
    for texts in ("text", None):
        with pytest.raises(TypeError, match="expected a list of texts"):
            await generator.generate(texts)
    with pytest.raises(TypeError, match="expected an EndpointPool"):
        PooledEmbeddingGenerator([Vectors()])
    with pytest.raises(ConfigurationError, match="dimension is 0"):
        PooledEmbeddingGenerator(pool_of(Vectors()), dimension=0)


async def test_closing_leaves_the_pool_open(anyio_backend):
    pool = pool_of(Vectors([VECTOR]))
    async with PooledEmbeddingGenerator(pool) as generator:
        pass
    with pytest.raises(ClientClosedError):
        await generator.generate(["a"])
    assert await PooledEmbeddingGenerator(pool).generate(["a"]) == [VECTOR]
