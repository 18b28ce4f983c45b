"""Clocks for tests: one set by hand, and event loops in virtual time."""

import time

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.lowlevel import checkpoint

from chatrouting.testing import ManualClock, VirtualTimeEventLoop, virtual_time_backends

DAY = 86_400.0


def test_a_manual_clock_shows_what_it_is_set_to():
    clock = ManualClock(10.0)

    clock.advance(2.5)
    clock.advance(0)

    assert clock() == clock.seconds == 12.5


def test_a_manual_clock_never_runs_backwards():
    with pytest.raises(ValueError, match="expected seconds, at least 0"):
        ManualClock().advance(-1)


def test_there_is_a_backend_for_each_event_loop_and_a_new_one_for_each_test():
    backends = virtual_time_backends()

    assert list(backends) == ["asyncio", "trio"]
    assert backends["trio"]()[1]["clock"] is not backends["trio"]()[1]["clock"]
    loop = backends["asyncio"]()[1]["loop_factory"]()
    assert isinstance(loop, VirtualTimeEventLoop)
    loop.close()


@pytest.mark.virtual_time
class TestVirtualTime:
    """Nothing but the event loop takes part."""

    @pytest.mark.parametrize("test", ["first", "second"])
    async def test_each_test_begins_at_zero(self, anyio_backend, test):
        began = anyio.current_time()
        await anyio.sleep(5)

        assert began < 1

    async def test_a_long_wait_is_over_at_once(self, anyio_backend):
        began, really = anyio.current_time(), time.monotonic()

        await anyio.sleep(30 * DAY)

        assert anyio.current_time() - began == pytest.approx(30 * DAY)
        assert time.monotonic() - really < 5

    async def test_timers_fire_in_order(self, anyio_backend):
        began = anyio.current_time()
        fired: list[float] = []

        async def fire(delay: float) -> None:
            await anyio.sleep(delay)
            fired.append(anyio.current_time() - began)

        async with anyio.create_task_group() as tasks:
            for delay in (3.0, 0.5, 2.0, 0.0):
                tasks.start_soon(fire, delay)

        assert fired == pytest.approx([0.0, 0.5, 2.0, 3.0])

    async def test_time_stands_still_while_there_is_something_to_do(self, anyio_backend):
        began = anyio.current_time()

        with anyio.fail_after(1e-6):
            for _ in range(1000):
                await checkpoint()

        assert anyio.current_time() == began

    async def test_waiting_for_ever_does_not_move_time(self, anyio_backend):
        began = anyio.current_time()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            await anyio.to_thread.run_sync(lambda: None)
            tasks.cancel_scope.cancel()

        assert anyio.current_time() == began

    async def test_a_timeout_cancels_at_its_time(self, anyio_backend):
        began = anyio.current_time()

        with pytest.raises(TimeoutError), anyio.fail_after(7):
            await anyio.sleep_forever()

        assert anyio.current_time() - began == pytest.approx(7)


async def _echo(connection: SocketStream) -> None:
    async with connection:
        async for data in connection:
            await connection.send(data)


# A moment of rest, as the kernel may take one to carry bytes over.
@pytest.mark.virtual_time(autojump_threshold=0.2)
class TestTheWorldOutside:
    """Sockets and threads take part."""

    async def test_what_comes_over_a_socket_comes_before_a_jump(self, anyio_backend):
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # not Django's
        began = anyio.current_time()

        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, _echo)
            with anyio.fail_after(60):
                async with await anyio.connect_tcp("127.0.0.1", port) as connection:
                    for _ in range(20):
                        await connection.send(b"ping")
                        assert await connection.receive() == b"ping"
            tasks.cancel_scope.cancel()

        assert anyio.current_time() == began

    async def test_a_quiet_socket_does_not_hold_time_up(self, anyio_backend):
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, _echo)
            began = anyio.current_time()
            await anyio.sleep(100)
            tasks.cancel_scope.cancel()

        assert anyio.current_time() - began == pytest.approx(100)

    async def test_a_thread_has_its_moment(self, anyio_backend):
        with anyio.fail_after(60):
            assert await anyio.to_thread.run_sync(lambda: "done") == "done"

    async def test_without_a_timer_a_thread_is_waited_for(self, anyio_backend):
        assert await anyio.to_thread.run_sync(lambda: "done") == "done"


async def test_without_the_marker_time_is_real(anyio_backend):
    began, really = anyio.current_time(), time.monotonic()

    await anyio.sleep(0.02)

    assert anyio.current_time() - began == pytest.approx(time.monotonic() - really, abs=0.1)
    assert time.monotonic() - really >= 0.01
