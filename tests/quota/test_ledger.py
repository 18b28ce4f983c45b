"""Admission over a whole path, settling, and the buckets that come and go."""

from math import inf, nan

import pytest

from chatrouting.errors import ConfigurationError
from chatrouting.options import Principal
from chatrouting.quota.ledger import Denial, Headroom, Hold, Ledger
from chatrouting.quota.limits import (
    BucketKey,
    BucketLimits,
    ChargePolicy,
    Level,
    ProviderScope,
    QuotaLimit,
    keys_of,
)

ONE = {"requests": 1}
SCOPE = ProviderScope("openai")


def only(*limits, **policy):
    return BucketLimits(limits, ChargePolicy(**policy))


def ledger_of(limits, **settings):
    """Make a ledger from limits by level; a mapping that is changed later is asked again."""
    return Ledger(lambda key: limits.get(key.level), **settings)


def path_of(ledger, *, scope=None, profile=None, **ids):
    return ledger.path(keys_of(Principal(**ids), model_profile=profile, scope=scope))


def used(ledger, path, now):
    return [usage.used for usage in ledger.usage(path, now)]


def admitted(ledger, path, charges=ONE, now=0.0):
    """Return how many requests go through at one instant."""
    return next(n for n in range(10_000) if isinstance(ledger.admit(path, charges, now), Denial))


class TestAdmission:
    """All or nothing, over every bucket of a path."""

    def test_charges_every_bucket_before_anything_is_sent(self):
        """[quota R26]"""
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("requests", 5), QuotaLimit("total_tokens", 1000)),
                Level.DEPLOYMENT: only(QuotaLimit("requests", 9), QuotaLimit("concurrency", 3)),
            }
        )
        path = path_of(ledger, tenant="shop", scope=SCOPE)
        charges = ONE | {"input_tokens": 100, "output_tokens": 50, "concurrency": 1}
        assert isinstance(ledger.admit(path, charges, 0.0), Hold)
        assert used(ledger, path, 0.0) == [1, 150, 1, 1]

    @pytest.mark.parametrize("tight", list(Level))
    def test_a_refusal_at_any_level_leaves_all_levels_as_they_were(self, tight):
        """[quota R33, G2]"""
        limits = {level: only(QuotaLimit("requests", 10)) for level in Level}
        limits[tight] = only(QuotaLimit("requests", 1))
        ledger = ledger_of(limits)
        path = path_of(
            ledger, organisation="o", tenant="t", team="m", api_key="k", profile="p", scope=SCOPE
        )
        assert isinstance(ledger.admit(path, ONE, 0.0), Hold)
        before = used(ledger, path, 0.0)
        denial = ledger.admit(path, ONE, 0.0)
        assert isinstance(denial, Denial)
        assert denial.key.level == tight
        assert used(ledger, path, 0.0) == before == [1] * 6

    def test_a_refusal_names_the_limit_that_makes_it_wait_longest(self):
        """[quota R39] With level, dimension and window, what was needed and what was used."""
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("requests", 1, window=10)),
                Level.TEAM: only(
                    QuotaLimit("input_tokens", 100, window=60),
                    QuotaLimit("requests", 1, window=5),
                ),
            }
        )
        path = path_of(ledger, tenant="shop", team="search")
        ledger.admit(path, ONE | {"input_tokens": 80}, 0.0)
        denial = ledger.admit(path, ONE | {"input_tokens": 30}, 0.0)
        assert denial.key == BucketKey(Level.TEAM, "search", ("shop",))
        assert denial.limit == QuotaLimit("input_tokens", 100)
        assert (denial.needed, denial.used) == (30, 80)
        assert denial.wait == pytest.approx(61.0, abs=1e-5)
        assert not denial.is_too_large

    def test_of_equal_waits_the_outermost_limit_is_named(self):
        limit = only(QuotaLimit("requests", 1))
        ledger = ledger_of({Level.TENANT: limit, Level.TEAM: limit})
        path = path_of(ledger, tenant="shop", team="search")
        ledger.admit(path, ONE, 0.0)
        assert ledger.admit(path, ONE, 0.0).key.level == Level.TENANT

    def test_a_request_larger_than_a_bucket_is_refused_for_good(self):
        """[BR-63] At once, and however empty the bucket is."""
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("input_tokens", 1000))})
        path = path_of(ledger, tenant="shop")
        denial = ledger.admit(path, {"input_tokens": 2000}, 0.0)
        assert denial.is_too_large
        assert denial.wait == inf

    def test_many_at_once_cannot_all_see_the_same_room(self):
        """[BR-58] What is estimated counts from admission on."""
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("total_tokens", 1000))})
        path = path_of(ledger, tenant="shop")
        results = [ledger.admit(path, {"input_tokens": 100}, 0.0) for _ in range(50)]
        assert sum(isinstance(result, Hold) for result in results) == 10

    def test_several_windows_of_one_dimension_hold_together(self):
        """[quota R14] Half a minute's limit within a second is spread, at full rate."""
        limits = only(QuotaLimit("requests", 600), QuotaLimit("requests", 100, window=10))
        ledger = ledger_of({Level.DEPLOYMENT: limits})
        path = path_of(ledger, scope=SCOPE)
        assert admitted(ledger, path) == 100
        denial = ledger.admit(path, ONE, 0.0)
        assert denial.limit.window == 10
        assert denial.wait < 10.2

    def test_what_a_request_does_not_need_is_not_looked_at(self):
        ledger = ledger_of(
            {Level.TENANT: only(QuotaLimit("requests", 9), QuotaLimit("custom:images", 1))}
        )
        path = path_of(ledger, tenant="shop")
        ledger.admit(path, ONE | {"custom:images": 1}, 0.0)
        assert isinstance(ledger.admit(path, ONE, 0.0), Hold)

    @pytest.mark.parametrize("amount", [-1.0, nan, inf])
    def test_an_impossible_charge_changes_nothing(self, amount):
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("requests", 5))})
        path = path_of(ledger, tenant="shop")
        for ask in (ledger.admit, ledger.debit, ledger.headroom):
            with pytest.raises(ValueError, match="expected a finite number"):
                ask(path, {"requests": amount}, 0.0)
        assert used(ledger, path, 0.0) == [0]

    def test_each_bucket_counts_in_its_own_way(self):
        """[quota R4] The provider takes the cap, our ceiling the estimate."""
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("output_tokens", 10_000)),
                Level.DEPLOYMENT: only(QuotaLimit("output_tokens", 10_000), output_charge="cap"),
            }
        )
        path = path_of(ledger, tenant="shop", scope=SCOPE)
        ledger.admit(path, {"output_tokens": 200, "output_cap": 4000}, 0.0)
        assert used(ledger, path, 0.0) == [200, 4000]

    def test_a_full_bucket_refuses_also_what_is_charged_later(self):
        """Where output counts as it is generated, next to nothing is charged before."""
        limits = only(QuotaLimit("output_tokens", 1000), output_charge="generated")
        ledger = ledger_of({Level.DEPLOYMENT: limits})
        path = path_of(ledger, scope=SCOPE)
        hold = ledger.admit(path, {"output_tokens": 300}, 0.0)
        assert used(ledger, path, 0.0) == [1]
        ledger.settle(hold, {"output_tokens": 1000}, 20.0)
        denial = ledger.admit(path, {"output_tokens": 300}, 20.0)
        assert denial.wait == pytest.approx(41.0, abs=1e-5)

    def test_a_clock_that_steps_back_and_forth_admits_no_more(self):
        """[BR-60] Eleven seconds back are no new window, and lock nobody out."""
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("requests", 10))})
        path = path_of(ledger, tenant="shop")
        through = [
            admitted(ledger, path, now=now) for now in (100.0, 89.0, 100.0, 89.0, 161.0, 150.0)
        ]
        assert through == [10, 0, 0, 0, 10, 0]


class TestLevels:
    """Whom each level protects."""

    def test_the_organisation_never_exceeds_the_provider(self):
        """[quota R34] Whatever the ceilings of its tenants add up to."""
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("requests", 80)),
                Level.DEPLOYMENT: only(QuotaLimit("requests", 100)),
            }
        )
        through = [
            admitted(ledger, path_of(ledger, tenant=tenant, scope=SCOPE)) for tenant in "abc"
        ]
        assert through == [80, 20, 0]

    def test_a_tenant_never_exceeds_its_ceiling(self):
        """[quota R35] Over all its keys and deployments."""
        ledger = ledger_of(
            {Level.TENANT: only(QuotaLimit("requests", 10)), Level.DEPLOYMENT: only()}
        )
        through = [
            admitted(ledger, path_of(ledger, tenant="shop", api_key=key, scope=ProviderScope(name)))
            for key, name in (("k1", "azure"), ("k2", "openai"))
        ]
        assert through == [10, 0]

    def test_a_key_never_exceeds_its_own_limit(self):
        """[quota R36] Its neighbour has what is left of the tenant's."""
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("requests", 10)),
                Level.API_KEY: only(QuotaLimit("requests", 7)),
            }
        )
        through = [
            admitted(ledger, path_of(ledger, tenant="shop", api_key=key)) for key in ("k1", "k2")
        ]
        assert through == [7, 3]

    def test_a_batch_profile_leaves_room_for_the_interactive_one(self):
        """[quota R37]"""
        profiles = {"batch": 60, "interactive": 100}
        ledger = Ledger(
            lambda key: only(
                QuotaLimit(
                    "requests", profiles[key.id] if key.level == Level.MODEL_PROFILE else 100
                )
            )
        )
        through = [
            admitted(ledger, path_of(ledger, profile=profile, scope=SCOPE))
            for profile in ("batch", "interactive")
        ]
        assert through == [60, 40]

    def test_a_deployment_is_full_although_another_has_room(self):
        """[quota R38]"""
        ledger = ledger_of({Level.DEPLOYMENT: only(QuotaLimit("requests", 10))})
        eu, us = (
            path_of(ledger, scope=ProviderScope("azure", {"region": region}))
            for region in ("eu", "us")
        )
        assert admitted(ledger, eu) == 10
        assert isinstance(ledger.admit(us, ONE, 0.0), Hold)
        assert isinstance(ledger.admit(eu, ONE, 0.0), Denial)

    def test_two_deployments_of_one_scope_share_a_bucket(self):
        """[quota R11]"""
        ledger = ledger_of({Level.DEPLOYMENT: only(QuotaLimit("requests", 10))})
        for profile in ("large", "small"):
            ledger.admit(path_of(ledger, profile=profile, scope=SCOPE), ONE, 0.0)
        assert used(ledger, path_of(ledger, scope=SCOPE), 0.0) == [2]

    def test_levels_without_limits_are_passed(self):
        """[quota R32]"""
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("requests", 1))})
        path = path_of(ledger, organisation="o", tenant="t", team="m", api_key="k", profile="p")
        assert [usage.key.level for usage in ledger.usage(path, 0.0)] == [Level.TENANT]

    def test_a_deployment_without_limits_is_a_mistake(self):
        """[quota R13] Never unlimited because somebody forgot it."""
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("requests", 1))})
        with pytest.raises(ConfigurationError, match="deployment 'openai:' has no limits"):
            path_of(ledger, tenant="shop", scope=SCOPE)
        assert ledger.bucket_count == 0

    def test_a_deployment_may_be_said_to_have_none(self):
        """[quota R13]"""
        ledger = ledger_of({Level.DEPLOYMENT: only()})
        path = path_of(ledger, scope=SCOPE)
        assert isinstance(ledger.admit(path, ONE, 0.0), Hold)
        assert ledger.headroom(path, ONE, 0.0) == Headroom(1.0, 0.0)

    def test_a_bucket_that_is_named_twice_is_charged_once(self):
        """[BR-56]"""
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("requests", 10))})
        key = BucketKey(Level.TENANT, "shop")
        path = ledger.path([key, key])
        ledger.admit(path, ONE, 0.0)
        assert used(ledger, path, 0.0) == [1]


class TestSettling:
    """A hold becomes what was used, once."""

    def make(self, **policy):
        ledger = ledger_of(
            {
                Level.TENANT: only(
                    QuotaLimit("requests", 10),
                    QuotaLimit("total_tokens", 1000),
                    QuotaLimit("concurrency", 2),
                    **policy,
                )
            }
        )
        path = path_of(ledger, tenant="shop")
        charges = ONE | {"input_tokens": 100, "output_tokens": 200, "concurrency": 1}
        return ledger, path, ledger.admit(path, charges, 0.0)

    def test_replaces_the_estimate_by_what_was_used(self):
        """[quota R25, R27, R28]"""
        ledger, path, hold = self.make()
        assert used(ledger, path, 0.0) == [1, 300, 1]
        assert ledger.settle(hold, {"input_tokens": 90, "output_tokens": 10}, 5.0)
        assert used(ledger, path, 5.0) == [1, 100, 0]

    def test_without_usage_the_estimate_stays(self):
        """[quota R27]"""
        ledger, path, hold = self.make()
        ledger.settle(hold, None, 5.0)
        assert used(ledger, path, 5.0) == [1, 300, 0]

    def test_charges_what_was_used_beyond(self):
        """[quota R28]"""
        ledger, path, hold = self.make()
        ledger.settle(hold, {"output_tokens": 2000}, 5.0)
        assert used(ledger, path, 5.0) == [1, 2100, 0]
        assert ledger.admit(path, ONE | {"input_tokens": 1}, 61.0).wait == pytest.approx(
            5.0, abs=0.1
        )

    def test_a_second_time_changes_nothing(self):
        """[quota R29]"""
        ledger, path, hold = self.make()
        assert ledger.settle(hold, {"output_tokens": 50}, 5.0)
        before = used(ledger, path, 5.0)
        assert not ledger.settle(hold, {"output_tokens": 5000}, 6.0)
        assert not ledger.settle(hold, None, 6.0, sent=False)
        ledger.extend(hold, 6.0)
        assert used(ledger, path, 6.0) == before

    def test_what_was_never_sent_is_given_back_whole(self):
        """[quota R31] Also where nothing else is."""
        ledger, path, hold = self.make(refund="none")
        ledger.settle(hold, None, 5.0, sent=False)
        assert used(ledger, path, 5.0) == [0, 0, 0]

    @pytest.mark.parametrize(("rule", "left"), [("count", [1, 300, 0]), ("free", [0, 0, 0])])
    def test_what_failed_counts_as_the_provider_says(self, rule, left):
        """[quota R31]"""
        ledger, path, hold = self.make(failed_requests=rule)
        ledger.settle(hold, None, 5.0, failed=True)
        assert used(ledger, path, 5.0) == left

    def test_usage_that_cannot_be_does_not_keep_it_from_settling(self):
        """[quota R29]"""
        ledger, path, hold = self.make()
        assert ledger.settle(hold, {"output_tokens": nan, "input_tokens": -1}, 5.0)
        assert used(ledger, path, 5.0) == [1, 300, 0]

    def test_more_of_one_counts_from_now_on_and_less_of_another_where_it_was_charged(self):
        """[quota R28] Whichever of the limits over the same slots comes last."""
        limits = only(QuotaLimit("input_tokens", 900), QuotaLimit("output_tokens", 900))
        ledger = ledger_of({Level.TENANT: limits})
        path = path_of(ledger, tenant="shop")
        hold = ledger.admit(path, {"input_tokens": 100, "output_tokens": 100}, 0.0)
        ledger.settle(hold, {"input_tokens": 150, "output_tokens": 40}, 5.0)
        assert used(ledger, path, 60.0) == [150, 40]
        assert used(ledger, path, 61.0) == [50, 0]

    def test_what_is_given_back_a_slot_later_leaves_with_its_charge(self):
        """[quota G3]"""
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("input_tokens", 900))})
        path = path_of(ledger, tenant="shop")
        hold = ledger.admit(path, {"input_tokens": 100}, 0.0)
        ledger.admit(path, {"input_tokens": 100}, 1.0)
        ledger.settle(hold, {"input_tokens": 40}, 1.0)
        assert used(ledger, path, 61.0) == [100]

    def test_a_hold_that_nobody_settles_leaves_gauges_with_its_lease(self):
        """[quota R29] What it was charged elsewhere stays: the provider may have seen it."""
        limits = only(QuotaLimit("requests", 10, window=3600), QuotaLimit("concurrency", 1))
        ledger = ledger_of({Level.TENANT: limits}, lease=30.0)
        path = path_of(ledger, tenant="shop")
        hold = ledger.admit(path, ONE | {"concurrency": 1}, 0.0)
        assert ledger.admit(path, ONE | {"concurrency": 1}, 10.0).wait == pytest.approx(20.0)
        assert used(ledger, path, 30.0) == [1, 0]
        assert ledger.settle(hold, None, 40.0)
        assert used(ledger, path, 40.0) == [1, 0]

    def test_a_stream_that_runs_keeps_its_place(self):
        ledger = ledger_of({Level.TENANT: only(QuotaLimit("concurrency", 1))}, lease=30.0)
        path = path_of(ledger, tenant="shop")
        hold = ledger.admit(path, {"concurrency": 1}, 0.0)
        ledger.extend(hold, 20.0)
        assert used(ledger, path, 45.0) == [1]
        ledger.extend(hold, 90.0)
        assert used(ledger, path, 95.0) == [1]
        ledger.settle(hold, None, 96.0)
        assert used(ledger, path, 96.0) == [0]


class TestSeveralPaths:
    """One request, charged once to its tenant and anew to each deployment it tries."""

    def make(self):
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("requests", 2)),
                Level.DEPLOYMENT: only(QuotaLimit("requests", 1, window=10)),
            }
        )
        return ledger, path_of(ledger, tenant="shop"), path_of(ledger, scope=SCOPE)

    def test_each_gets_a_hold_of_its_own(self):
        ledger, tenant, deployment = self.make()
        outer, inner = ledger.admit_all([(tenant, ONE), (deployment, ONE)], 0.0)
        ledger.settle(inner, None, 1.0, sent=False)
        assert used(ledger, tenant, 1.0) + used(ledger, deployment, 1.0) == [1, 0]
        ledger.settle(outer, None, 1.0, sent=False)
        assert used(ledger, tenant, 1.0) == [0]

    def test_none_is_charged_if_one_refuses(self):
        """[quota R33, G2]"""
        ledger, tenant, deployment = self.make()
        ledger.admit(deployment, ONE, 0.0)
        denial = ledger.admit_all([(tenant, ONE), (deployment, ONE)], 0.0)
        assert denial.key.level == Level.DEPLOYMENT
        assert used(ledger, tenant, 0.0) == [0]

    def test_the_longest_wait_of_all_is_named(self):
        """[quota R39, R57]"""
        ledger, tenant, deployment = self.make()
        ledger.admit_all([(tenant, ONE), (deployment, ONE)], 0.0)
        ledger.admit(tenant, ONE, 0.0)
        denial = ledger.admit_all([(deployment, ONE), (tenant, ONE)], 0.0)
        assert denial.key.level == Level.TENANT


class TestReading:
    """What others want to know."""

    def test_headroom_is_the_share_that_is_free_and_the_wait(self):
        ledger = ledger_of({Level.DEPLOYMENT: only(QuotaLimit("requests", 4))})
        path = path_of(ledger, scope=SCOPE)
        assert ledger.headroom(path, ONE, 0.0) == Headroom(1.0, 0.0)
        ledger.admit(path, {"requests": 3}, 0.0)
        assert ledger.headroom(path, ONE, 0.0) == Headroom(0.25, 0.0)
        share, wait = ledger.headroom(path, {"requests": 2}, 0.0)
        assert (share, wait) == (0.25, pytest.approx(61.0, abs=1e-5))
        assert used(ledger, path, 0.0) == [3]

    def test_headroom_of_an_overdrawn_bucket_is_nothing(self):
        ledger = ledger_of({Level.DEPLOYMENT: only(QuotaLimit("requests", 4))})
        path = path_of(ledger, scope=SCOPE)
        ledger.debit(path, {"requests": 9}, 0.0)
        assert ledger.headroom(path, ONE, 0.0).share == 0.0

    def test_what_others_used_is_charged_to_now(self):
        limits = only(
            QuotaLimit("requests", 10, burst=5.0),
            QuotaLimit("requests", 100, period="day"),
            QuotaLimit("concurrency", 5),
        )
        ledger = ledger_of({Level.DEPLOYMENT: limits})
        path = path_of(ledger, scope=SCOPE)
        ledger.debit(path, {"requests": 4, "concurrency": 2}, 100.0)
        assert used(ledger, path, 100.0) == [4, 4, 4, 0]
        assert used(ledger, path, 161.0) == [0, 0, 4, 0]

    def test_a_snapshot_shows_every_bucket(self):
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("requests", 4)),
                Level.DEPLOYMENT: only(QuotaLimit("concurrency", 7)),
            }
        )
        for tenant in ("shop", "bank"):
            path = path_of(ledger, tenant=tenant, scope=SCOPE)
            ledger.admit(path, ONE | {"concurrency": 1}, 0.0)
        shown = {usage.key.id: (usage.used, usage.size) for usage in ledger.snapshot(1.0)}
        assert shown == {"shop": (1, 4), "bank": (1, 4), "openai:": (2, 7)}


class TestTies:
    """Of limits that make a request wait equally long, the first of the path is named."""

    def test_the_outermost_bucket_comes_first(self):
        """[quota R57] Whatever kinds of limits the buckets have."""
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("concurrency", 1), QuotaLimit("input_tokens", 5)),
                Level.TEAM: only(QuotaLimit("input_tokens", 5), QuotaLimit("requests", 0.5)),
                Level.API_KEY: only(QuotaLimit("requests", 0.5)),
            }
        )
        path = path_of(ledger, tenant="shop", team="search", api_key="k")
        denial = ledger.admit(path, ONE | {"input_tokens": 6}, 0.0)
        assert (denial.key.level, denial.limit.dimension) == (Level.TENANT, "input_tokens")
        denial = ledger.admit(path, ONE | {"input_tokens": 6, "concurrency": 2}, 0.0)
        assert (denial.key.level, denial.limit.dimension) == (Level.TENANT, "concurrency")

    def test_the_fullest_limit_is_the_headroom_of_any_kind(self):
        ledger = ledger_of(
            {Level.TENANT: only(QuotaLimit("requests", 10), QuotaLimit("concurrency", 4))}
        )
        path = path_of(ledger, tenant="shop")
        ledger.admit(path, ONE | {"concurrency": 1}, 0.0)
        assert ledger.headroom(path, ONE, 0.0).share == 0.75


def test_the_fullest_of_limits_over_the_same_slots_is_the_headroom():
    """As time goes by, also where the request itself needs nothing of them."""
    limits = only(QuotaLimit("requests", 2), QuotaLimit("input_tokens", 100))
    ledger = ledger_of({Level.TENANT: limits})
    path = path_of(ledger, tenant="shop")
    ledger.admit(path, ONE | {"input_tokens": 10}, 0.0)
    assert ledger.headroom(path, {}, 0.0).share == 0.5
    assert ledger.headroom(path, {}, 61.0).share == 1.0


class TestLiveChanges:
    """Limits that change while requests hold something. [quota R63]"""

    def make(self, *limits):
        by_level = {Level.TENANT: only(*limits)}
        ledger = ledger_of(by_level)
        return ledger, path_of(ledger, tenant="shop"), by_level

    def test_more_is_free_at_once(self):
        ledger, path, limits = self.make(QuotaLimit("requests", 2))
        assert admitted(ledger, path) == 2
        limits[Level.TENANT] = only(QuotaLimit("requests", 5))
        ledger.reconfigure(1.0)
        assert admitted(ledger, path, now=1.0) == 3

    @pytest.mark.parametrize("slots", [60, 30])
    def test_what_is_counted_goes_on_beside_other_limits(self, slots):
        """Also what is held: it is given back to where it was charged."""
        ledger, path, limits = self.make(
            QuotaLimit("requests", 9), QuotaLimit("input_tokens", 900), QuotaLimit("concurrency", 9)
        )
        tokens = ONE | {"input_tokens": 100, "concurrency": 1, "custom:images": 2}
        first, second = ledger.admit(path, tokens, 0.0), ledger.admit(path, tokens, 5.0)
        limits[Level.TENANT] = only(
            QuotaLimit("custom:images", 9),
            QuotaLimit("input_tokens", 900, slots=slots),
            QuotaLimit("stream_seconds", 9),
            QuotaLimit("requests", 9),
            QuotaLimit("concurrency", 9),
        )
        ledger.reconfigure(10.0)
        assert used(ledger, path, 10.0) == [0, 200, 0, 2, 2]
        ledger.settle(first, {"input_tokens": 40}, 11.0)
        ledger.settle(second, {"input_tokens": 130}, 12.0)
        assert used(ledger, path, 12.0) == [0, 170, 0, 2, 0]
        assert used(ledger, path, 62.0) == [0, 130, 0, 1, 0]
        assert used(ledger, path, 68.0) == [0, 30, 0, 0, 0]

    def test_limits_of_one_window_may_part(self):
        """And what is held of both is given back to both."""
        ledger, path, limits = self.make(QuotaLimit("requests", 9), QuotaLimit("input_tokens", 900))
        ledger.admit(path, ONE, 0.0)
        hold = ledger.admit(path, ONE | {"input_tokens": 100}, 4.0)
        limits[Level.TENANT] = only(
            QuotaLimit("requests", 9, slots=60), QuotaLimit("input_tokens", 900, slots=30)
        )
        ledger.reconfigure(10.0)
        assert used(ledger, path, 10.0) == [2, 100]
        ledger.settle(hold, None, 11.0, sent=False)
        assert used(ledger, path, 11.0) == [1, 0]

    def test_limits_may_change_a_thousand_times_while_a_request_runs(self):
        """[quota R29] And it is given back all the same."""
        requests, tokens = QuotaLimit("requests", 9), QuotaLimit("input_tokens", 900)
        ledger, path, limits = self.make(requests, tokens)
        hold = ledger.admit(path, ONE | {"input_tokens": 100}, 0.0)
        for change in range(1000):
            order = (tokens, requests) if change % 2 == 0 else (requests, tokens)
            limits[Level.TENANT] = only(*order)
            ledger.reconfigure(change / 1000)
        ledger.settle(hold, {"input_tokens": 60}, 2.0)
        assert used(ledger, path, 2.0) == [1, 60]

    def test_more_may_be_held_at_once(self):
        ledger, path, limits = self.make(QuotaLimit("requests", 9), QuotaLimit("concurrency", 1))
        one = ONE | {"concurrency": 1}
        assert ledger.admit(path, one, 0.0)
        limits[Level.TENANT] = only(QuotaLimit("requests", 9), QuotaLimit("concurrency", 2))
        ledger.reconfigure(1.0)
        assert isinstance(ledger.admit(path, one, 1.0), Hold)
        assert isinstance(ledger.admit(path, one, 1.0), Denial)

    def test_a_limit_that_is_gone_counts_no_more(self):
        """Nor does what is held of it when it comes again."""
        ledger, path, limits = self.make(QuotaLimit("requests", 9), QuotaLimit("input_tokens", 900))
        hold = ledger.admit(path, ONE | {"input_tokens": 100}, 0.0)
        both = limits[Level.TENANT]
        limits[Level.TENANT] = only(QuotaLimit("requests", 9))
        ledger.reconfigure(0.1)
        limits[Level.TENANT] = both
        ledger.reconfigure(0.2)
        ledger.admit(path, ONE | {"input_tokens": 70}, 0.3)
        ledger.settle(hold, None, 0.4, sent=False)
        assert used(ledger, path, 0.4) == [1, 70]

    def test_with_less_nothing_goes_through_until_it_has_drained(self):
        ledger, path, limits = self.make(QuotaLimit("requests", 5))
        for second in range(5):
            ledger.admit(path, ONE, float(second))
        limits[Level.TENANT] = only(QuotaLimit("requests", 2))
        ledger.reconfigure(10.0)
        assert admitted(ledger, path, now=10.0) == 0
        assert admitted(ledger, path, now=63.99) == 0
        assert admitted(ledger, path, now=64.0) == 1

    def test_holds_settle_where_they_were_charged(self):
        ledger, path, limits = self.make(QuotaLimit("requests", 5), QuotaLimit("concurrency", 5))
        hold = ledger.admit(path, ONE | {"concurrency": 1}, 0.0)
        limits[Level.TENANT] = only(QuotaLimit("concurrency", 1), QuotaLimit("requests", 1))
        ledger.reconfigure(1.0)
        assert used(ledger, path, 1.0) == [1, 1]
        ledger.settle(hold, None, 1.0, sent=False)
        assert used(ledger, path, 1.0) == [0, 0]

    def test_a_new_limit_begins_at_nothing_and_gets_nothing_back(self):
        ledger, path, limits = self.make(QuotaLimit("requests", 5))
        hold = ledger.admit(path, ONE | {"input_tokens": 50}, 0.0)
        limits[Level.TENANT] = only(QuotaLimit("requests", 5), QuotaLimit("input_tokens", 100))
        ledger.reconfigure(1.0)
        ledger.admit(path, ONE | {"input_tokens": 70}, 1.0)
        ledger.settle(hold, None, 2.0, sent=False)
        assert used(ledger, path, 2.0) == [1, 70]

    def test_a_limit_may_go_while_it_is_held(self):
        ledger, path, limits = self.make(QuotaLimit("requests", 1))
        hold = ledger.admit(path, ONE, 0.0)
        del limits[Level.TENANT]
        ledger.reconfigure(1.0)
        assert used(ledger, path, 1.0) == []
        assert isinstance(ledger.admit(path, ONE, 1.0), Hold)
        assert ledger.settle(hold, None, 2.0)

    def test_a_level_may_get_its_first_limits(self):
        ledger, _, limits = self.make(QuotaLimit("requests", 5))
        path = path_of(ledger, tenant="shop", team="search")
        limits[Level.TEAM] = only(QuotaLimit("requests", 1))
        ledger.reconfigure(1.0)
        assert admitted(ledger, path, now=1.0) == 1

    def test_another_policy_holds_for_new_requests(self):
        ledger, path, limits = self.make(QuotaLimit("output_tokens", 1000))
        hold = ledger.admit(path, {"output_tokens": 100, "output_cap": 500}, 0.0)
        limits[Level.TENANT] = only(
            QuotaLimit("output_tokens", 1000), output_charge="cap", refund="none"
        )
        ledger.reconfigure(1.0)
        ledger.admit(path, {"output_tokens": 100, "output_cap": 500}, 1.0)
        ledger.settle(hold, {"output_tokens": 40}, 2.0)
        assert used(ledger, path, 2.0) == [540]

    def test_two_windows_of_one_dimension_keep_their_counts(self):
        ledger, path, limits = self.make(
            QuotaLimit("requests", 60), QuotaLimit("requests", 10, window=10, burst=1.0)
        )
        ledger.admit(path, ONE, 0.0)
        limits[Level.TENANT] = only(
            QuotaLimit("requests", 20, window=10, burst=1.0), QuotaLimit("requests", 30)
        )
        ledger.reconfigure(0.0)
        assert used(ledger, path, 0.0) == [1, 1, 1]
        assert [usage.size for usage in ledger.usage(path, 0.0)] == [20, 2, 30]


class TestIdleBuckets:
    """A bucket goes when a new one would do as well."""

    def make(self, *limits):
        by_level = {Level.TENANT: only(QuotaLimit("requests", 10**6)), Level.API_KEY: only(*limits)}
        return ledger_of(by_level)

    def test_idle_keys_go_while_busy_ones_stay(self):
        ledger = self.make(QuotaLimit("requests", 5))
        for number in range(100):
            path = path_of(ledger, tenant="shop", api_key=f"k{number}")
            ledger.settle(ledger.admit(path, ONE, 0.0), None, 0.0)
        assert ledger.bucket_count == 101
        busy = path_of(ledger, tenant="shop", api_key="k0")
        for _ in range(200):
            ledger.settle(ledger.admit(busy, {}, 200.0), None, 200.0)
        assert (ledger.bucket_count, ledger.path_count) == (2, 1)

    def test_keys_that_are_only_refused_go_as_well(self):
        """Nobody fills the memory with keys that he makes up."""
        ledger = ledger_of(
            {
                Level.TENANT: only(QuotaLimit("requests", 1)),
                Level.API_KEY: only(QuotaLimit("requests", 1)),
            }
        )
        most = 0
        for number in range(3000):
            path = path_of(ledger, tenant="shop", api_key=f"k{number}")
            ledger.admit(path, ONE, number * 1.0)
            most = max(most, ledger.bucket_count)
        assert most < 300

    def test_a_bucket_that_counts_something_stays(self):
        """[quota R15] A day's count for the day, however idle the key is."""
        ledger = self.make(QuotaLimit("requests", 1, period="day"))
        path = path_of(ledger, tenant="shop", api_key="k")
        ledger.settle(ledger.admit(path, ONE, 0.0), None, 0.0)
        other = path_of(ledger, tenant="shop", api_key="other")
        for _ in range(5):
            ledger.admit(other, {}, 80_000.0)
        path = path_of(ledger, tenant="shop", api_key="k")
        assert isinstance(ledger.admit(path, ONE, 80_000.0), Denial)
        for _ in range(5):
            ledger.admit(other, {}, 86_500.0)
        assert isinstance(ledger.admit(path, ONE, 86_500.0), Hold)

    def test_a_bucket_in_which_something_is_held_stays(self):
        """Also beyond its window: what the request uses in the end is charged there."""
        ledger = self.make(QuotaLimit("output_tokens", 100))
        path = path_of(ledger, tenant="shop", api_key="k")
        hold = ledger.admit(path, {"output_tokens": 10}, 0.0)
        other = path_of(ledger, tenant="shop", api_key="other")
        for _ in range(5):
            ledger.admit(other, {}, 300.0)
        ledger.settle(hold, {"output_tokens": 110}, 300.0)
        path = path_of(ledger, tenant="shop", api_key="k")
        assert used(ledger, path, 300.0)[1] == 100

    def make_one_that_outlives_its_lease(self):
        limits = {
            Level.API_KEY: only(
                QuotaLimit("output_tokens", 100),
                QuotaLimit("concurrency", 1),
                output_charge="generated",
            )
        }
        ledger = ledger_of(limits, lease=100.0)
        hold = ledger.admit(
            path_of(ledger, api_key="k"), {"output_tokens": 50, "concurrency": 1}, 0.0
        )
        other = path_of(ledger, api_key="other")
        for _ in range(3):
            ledger.settle(ledger.admit(other, {}, 200.0), None, 200.0)
        assert ledger.bucket_count == 1
        return ledger, hold, limits

    def test_what_outlives_its_lease_is_charged_where_requests_look(self):
        """[quota R28] Its bucket has gone, and the token charged at first, but not what it used."""
        ledger, hold, _ = self.make_one_that_outlives_its_lease()
        ledger.settle(hold, {"output_tokens": 90}, 201.0)
        path = path_of(ledger, api_key="k")
        assert used(ledger, path, 201.0) == [89, 0]
        assert path.open_holds == 0
        assert isinstance(ledger.admit(path, {"output_tokens": 20}, 201.0), Hold)

    def test_what_outlives_its_lease_gives_nothing_back(self):
        """[quota G1] What it was charged has left the window long ago."""
        ledger, hold, _ = self.make_one_that_outlives_its_lease()
        path = path_of(ledger, api_key="k")
        ledger.admit(path, {"output_tokens": 40}, 200.0)
        ledger.settle(hold, None, 201.0, sent=False)
        assert used(ledger, path, 201.0) == [1, 0]

    def test_what_outlives_its_lease_holds_its_place_once_it_is_extended(self):
        ledger, hold, _ = self.make_one_that_outlives_its_lease()
        ledger.extend(hold, 201.0)
        path = path_of(ledger, api_key="k")
        assert used(ledger, path, 201.0) == [0, 1]
        assert path.open_holds == 1
        ledger.settle(hold, {"output_tokens": 90}, 202.0)
        assert used(ledger, path, 202.0) == [89, 0]
        assert path.open_holds == 0

    def test_what_outlives_its_lease_settles_also_where_other_things_are_limited_now(self):
        """[quota R29]"""
        ledger, hold, limits = self.make_one_that_outlives_its_lease()
        limits[Level.API_KEY] = only(QuotaLimit("requests", 5))
        ledger.reconfigure(201.0)
        assert ledger.settle(hold, {"output_tokens": 90}, 202.0)
        path = path_of(ledger, api_key="k")
        assert used(ledger, path, 202.0) == [0]
        assert path.open_holds == 0

    def test_a_path_that_went_is_found_again(self):
        """Whoever kept it does not charge buckets that nobody else sees."""
        ledger = self.make(QuotaLimit("requests", 1))
        kept = path_of(ledger, tenant="shop", api_key="k")
        ledger.admit(kept, ONE, 0.0)
        other = path_of(ledger, tenant="shop", api_key="other")
        for _ in range(5):
            ledger.settle(ledger.admit(other, {}, 1000.0), None, 1000.0)
        assert ledger.path_count == 1
        assert isinstance(ledger.admit(kept, ONE, 1000.0), Hold)
        again = path_of(ledger, tenant="shop", api_key="k")
        assert isinstance(ledger.admit(again, ONE, 1000.0), Denial)

    def test_a_lost_hold_keeps_its_bucket_no_longer_than_its_lease(self):
        ledger = ledger_of({Level.API_KEY: only(QuotaLimit("concurrency", 1))}, lease=100.0)
        ledger.admit(path_of(ledger, api_key="k"), {"concurrency": 1}, 0.0)
        other = path_of(ledger, api_key="other")
        for now, left in ((99.0, 2), (100.0, 1)):
            for _ in range(5):
                ledger.admit(other, {}, now)
            assert ledger.bucket_count == left
