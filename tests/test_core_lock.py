"""The lock around what destructors may change as well."""

import threading

import pytest

from chatrouting._core_lock import CoreLock


def test_it_knows_whether_this_thread_holds_it():
    """What another thread holds has to be waited for."""
    lock = CoreLock()
    seen = []
    assert not lock.is_held_here()
    with lock:
        assert lock.is_held_here()
        other = threading.Thread(target=lambda: seen.append(lock.is_held_here()))
        other.start()
        other.join()
    assert not lock.is_held_here()
    assert seen == [False]


def test_what_cannot_be_done_now_is_done_once_it_is_free():
    """In order, and free to take the lock."""
    lock = CoreLock()
    done = []

    def call(name):
        with lock:
            done.append(name)

    with lock:
        lock.later(lambda: call("first"))
        lock.later(lambda: call("second"))
        assert done == []
    assert done == ["first", "second"]


def test_it_is_given_back_whatever_is_raised():
    """An error in the middle is the caller's, and what waited is done."""
    lock = CoreLock()
    done = []
    with pytest.raises(ValueError, match="boom"), lock:
        lock.later(lambda: done.append("later"))
        raise ValueError("boom")
    assert done == ["later"]
    lock.acquire()
    lock.release()
    assert not lock.is_held_here()


def test_one_thread_at_a_time():
    """Four threads count to the same number as one."""
    lock = CoreLock()
    count = 0

    def work():
        nonlocal count
        for _ in range(2000):
            with lock:
                seen = count
                count = seen + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 8000


def test_what_waits_is_done_once_whoever_does_it():
    """Threads that leave something for later at the same time may do each other's."""
    lock = CoreLock()
    done = []

    def work(name):
        for number in range(500):
            with lock:
                lock.later(lambda number=number: done.append((name, number)))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [(name, number) for name in range(4) for number in range(500)]


def test_what_a_destructor_leaves_behind_meanwhile_is_done_too():
    """It may come while others of its kind are done, which holds the lock for a moment."""
    lock = CoreLock()
    done = []

    class Dropped:
        def __del__(self):
            assert lock.is_held_here()
            lock.later(lambda: done.append("dropped"))

    held = [Dropped()]

    def drop():
        with lock:
            held.clear()
            assert done == []

    with lock:
        lock.later(drop)
    assert done == ["dropped"]
