"""What a request costs in buckets that count in different ways."""

from math import inf, nan

import pytest

from chatrouting.quota.charging import admission_costs, check_charges, known, settlement_costs
from chatrouting.quota.limits import ChargePolicy

CHARGES = {
    "requests": 1,
    "input_tokens": 1000,
    "cache_read_tokens": 400,
    "output_tokens": 300,
    "output_cap": 2000,
    "concurrency": 1,
    "custom:images": 2,
}


def admission(**policy):
    costs = admission_costs(ChargePolicy(**policy), CHARGES)
    return costs["input_tokens"], costs["output_tokens"], costs["total_tokens"]


def settlement(actual, *, failed=False, charges=CHARGES, **settings):
    policy = ChargePolicy(**settings)
    charged = admission_costs(policy, charges)
    return settlement_costs(policy, charges, charged, actual, failed=failed)


def tokens(costs):
    return costs["input_tokens"], costs["output_tokens"], costs["total_tokens"]


@pytest.mark.parametrize(
    ("policy", "costs"),
    [
        ({}, (1000, 300, 1300)),
        ({"output_charge": "cap"}, (1000, 2000, 3000)),
        ({"output_charge": "generated"}, (1000, 1, 1001)),
        ({"cache_reads": "free"}, (600, 300, 900)),
        ({"cache_reads": "release_on_settle"}, (1000, 300, 1300)),
        ({"cache_reads": "free", "output_charge": "cap"}, (600, 2000, 2600)),
    ],
)
def test_a_policy_says_what_is_charged_before(policy, costs):
    """[quota R4, R8] One request, several ways to count; the total is what they make of it."""
    assert admission(**policy) == costs


def test_without_a_cap_the_estimate_stands_for_it():
    charges = {"input_tokens": 10, "output_tokens": 5}
    assert tokens(admission_costs(ChargePolicy(output_charge="cap"), charges)) == (10, 5, 15)


def test_a_total_that_nobody_has_split_stays():
    """[quota R8]"""
    assert admission_costs(ChargePolicy(), {"total_tokens": 7}) == {"total_tokens": 7}
    assert settlement({"total_tokens": 5}, charges={"total_tokens": 7}) == {"total_tokens": 5}
    assert settlement({}, charges={"total_tokens": 7}) == {"total_tokens": 7}


def test_other_dimensions_are_charged_as_they_are():
    costs = admission_costs(ChargePolicy(), CHARGES)
    assert (costs["requests"], costs["concurrency"], costs["custom:images"]) == (1, 1, 2)
    assert "output_cap" not in costs
    assert "cache_read_tokens" not in costs


ACTUAL = {"input_tokens": 900, "cache_read_tokens": 500, "output_tokens": 100}


@pytest.mark.parametrize(
    ("policy", "costs"),
    [
        ({}, (900, 100, 1000)),
        ({"output_charge": "cap"}, (900, 100, 1000)),
        ({"output_charge": "generated"}, (900, 100, 1000)),
        ({"cache_reads": "free"}, (400, 100, 500)),
        ({"cache_reads": "release_on_settle"}, (400, 100, 500)),
        ({"refund": "none"}, (1000, 300, 1300)),
        ({"refund": "none", "output_charge": "cap"}, (1000, 2000, 3000)),
    ],
)
def test_a_policy_says_what_is_charged_in_the_end(policy, costs):
    """[quota R27, R28]"""
    assert tokens(settlement(ACTUAL, **policy)) == costs


def test_without_refunds_more_than_was_charged_is_charged_all_the_same():
    """[quota R28]"""
    costs = settlement({"input_tokens": 1200, "output_tokens": 100}, refund="none")
    assert tokens(costs) == (1200, 300, 1300 + 200 - 200)


def test_what_nobody_reports_stays_as_it_was_estimated():
    """[quota R27]"""
    assert tokens(settlement({})) == (1000, 300, 1300)
    assert tokens(settlement({"output_tokens": 50})) == (1000, 50, 1050)
    assert tokens(settlement({"input_tokens": 50})) == (50, 300, 350)
    assert settlement({})["requests"] == 1


def test_generated_output_that_nobody_reports_is_the_estimate():
    """[quota R27] One token had been charged for it."""
    assert tokens(settlement({}, output_charge="generated")) == (1000, 300, 1300)


def test_other_dimensions_settle_as_reported():
    costs = settlement({"custom:images": 1, "custom:videos": 3})
    assert (costs["custom:images"], costs["custom:videos"]) == (1, 3)


def test_a_failed_request_counts_where_the_provider_counts_it():
    """[quota R31]"""
    assert tokens(settlement({}, failed=True)) == (1000, 300, 1300)
    assert tokens(settlement({}, failed=True, output_charge="generated")) == (1000, 0, 1000)
    assert settlement({}, failed=True, failed_requests="free") == {}


def test_a_failed_request_is_free_also_where_nothing_is_refunded():
    """[quota R31]"""
    assert settlement({}, failed=True, failed_requests="free", refund="none") == {}


@pytest.mark.parametrize("amount", [-1, nan, inf])
def test_an_impossible_charge_is_refused(amount):
    """[BR-63]"""
    with pytest.raises(ValueError, match=r"charged .* of requests; expected a finite number"):
        check_charges({"requests": amount})


def test_an_impossible_usage_is_not_believed():
    """A provider may report anything; settling goes on."""
    reported = {"input_tokens": -5, "output_tokens": nan, "requests": inf, "custom:x": 3}
    assert known(reported) == {"custom:x": 3}
    assert known({"input_tokens": 10**400, "output_tokens": 1e300, "custom:x": 3}) == {
        "custom:x": 3
    }
    assert known(None) == {}
