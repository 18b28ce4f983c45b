"""Images over a pool: made and edited by real SDK clients on several regions."""

import pytest

from chatrouting import DataContent
from chatrouting.adapters.images import ImageClient, ImageOptions
from chatrouting.errors import APITimeoutError, AttemptTimeoutError, ClientClosedError
from chatrouting.pool import EndpointStatus, PooledImageClient
from chatrouting.pool.sdk import image_clients
from chatrouting.testing.provider_server import Gate, Reply

TIERS = {"eastus": {"priority": 1}, "westus": {"priority": 2}}
CAT = DataContent(b"\x89PNG cat", "image/png")


@pytest.fixture(params=["generate", "edit"])
def draw(request):
    """Return `draw(client)`, which makes or edits a picture."""

    async def generate(client):
        return await client.generate("A cat", ImageOptions(count=1))

    async def edit(client):
        return await client.edit("A hat", iter([CAT]), ImageOptions(count=1), mask=CAT)

    return generate if request.param == "generate" else edit


@pytest.fixture
def studio(serve):
    """Return `serve` for pools of image clients."""

    def serving(replies, **settings):
        return serve(replies, clients=image_clients, **settings)

    return serving


async def test_a_picture_comes_from_any_member(anyio_backend, studio, draw):
    async with studio({"eastus": Reply(), "westus": Reply()}) as regions:
        client = PooledImageClient(regions.pool)
        (picture,) = (await draw(client)).images

        assert isinstance(client, ImageClient)
        assert client.pool is regions.pool
        assert picture.data.startswith(b"\x89PNG")
        assert sum(regions.counts.values()) == 1
        assert regions.in_flight == 0


async def test_edits_go_through_the_pool_too(anyio_backend, studio, draw):
    """Each at the member's own address.

    [pools 64]
    """
    async with studio({"eastus": Reply.error(429), "westus": Reply()}, facts=TIERS) as regions:
        await draw(PooledImageClient(regions.pool))

        (failed,), (answered,) = regions["eastus"].requests, regions["westus"].requests
        assert failed.path == answered.path
        assert failed.body == answered.body


@pytest.mark.virtual_time(autojump_threshold=0.02)
@pytest.mark.parametrize("retries", [False, True])
async def test_a_picture_that_takes_too_long_is_not_ordered_twice(
    anyio_backend, studio, draw, retries
):
    """It may be billed all the same. The member rests in any case."""
    facts = {"eastus": {"priority": 1, "timeout": 30}, "westus": {"priority": 2}}
    replies = {"eastus": Reply(gates={"headers": Gate()}), "westus": Reply()}
    async with studio(replies, facts=facts) as regions:
        client = PooledImageClient(regions.pool, retry_on_timeout=retries)
        if retries:
            await draw(client)
        else:
            with pytest.raises((AttemptTimeoutError, APITimeoutError)):
                await draw(client)

        assert regions.counts == {"eastus": 1, "westus": int(retries)}
        assert regions.pool.snapshot()[0].status is EndpointStatus.FAULTED


async def test_closing_leaves_the_pool_open(anyio_backend, studio, draw):
    async with studio({"eastus": Reply()}) as regions:
        async with PooledImageClient(regions.pool) as client:
            pass
        with pytest.raises(ClientClosedError):
            await draw(client)
        await draw(PooledImageClient(regions.pool))
    with pytest.raises(TypeError, match="expected an EndpointPool"):
        PooledImageClient([client])
