"""Further attempts are a small part of all."""

from chatrouting.pool.windows import SlidingSum


def test_a_quiet_client_may_try_ten_times_a_second(build):
    pool = build("a", "b", retry_budget=0.2)
    assert [pool.may_retry() for _ in range(101)] == [True] * 100 + [False]


def test_a_busy_client_may_try_a_part_of_its_requests_again(build, clock):
    pool = build("a", "b", retry_budget=0.2)
    for _ in range(1000):
        pool.released(pool.take())
    assert sum(pool.may_retry() for _ in range(1000)) == 300
    clock.advance(11)
    assert sum(pool.may_retry() for _ in range(1000)) == 100


def test_further_attempts_earn_no_further_attempts(build):
    pool = build("a", "b", retry_budget=1.0)
    for _ in range(50):
        pool.released(pool.take(is_retry=True))
    assert sum(pool.may_retry() for _ in range(1000)) == 100


def test_without_a_budget_nobody_counts(build):
    pool = build("a", "b")
    assert all(pool.may_retry() for _ in range(1000))


def test_a_sum_forgets_what_is_out_of_its_window_and_not_more():
    total = SlidingSum(10.0)
    total.add(1, 0.0)
    total.add(2, 0.3)
    total.add(4, 5.0)
    assert (total.total(9.99), total.total(10.49), total.total(10.5)) == (7, 7, 4)
    assert (total.total(15.4), total.total(15.5)) == (4, 0)
