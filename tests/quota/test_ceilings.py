"""Whom a ceiling is for: whoever has the ids that it names."""

import pytest

from chatrouting import Principal
from chatrouting.errors import ConfigurationError
from chatrouting.quota import (
    BucketKey,
    BucketLimits,
    Decision,
    Level,
    QuotaLimit,
    parse_limits,
)
from chatrouting.quota._ceilings import Ceilings, Watched
from chatrouting.quota.limits import keys_of
from tests.quota._desk import Desk


def limits(amount):
    return BucketLimits((QuotaLimit("output_tokens", amount),))


ACME = BucketKey(Level.TENANT, "acme")
IN_NORTH = BucketKey(Level.TENANT, "acme", ("north",))
NORTH = {"organisation": "north"}


@pytest.mark.parametrize("others", [{}, NORTH, {**NORTH, "team": "red", "api_key": "k"}], ids=repr)
def test_a_tenants_ceiling_holds_in_whatever_organisation_it_is(others):
    """[quota R35] Whoever names more ids than the ceiling does passes by none."""
    desk = Desk(ceilings={ACME: limits(200)})

    admitted = desk.fill(principal=others)

    assert len(admitted) == 2
    denial = desk.ask(principal=others)
    assert isinstance(denial, Decision)
    assert denial.limiter.key.level == Level.TENANT


def test_a_ceiling_of_the_file_holds_so_too():
    """[quota R35] `[[ceilings]]` with a tenant alone."""
    file = parse_limits(
        """
        [deployments.a]
        profile = "groq"
        scope = { organisation = "o", model = "m" }
        limits = { requests = 1000 }
        [[ceilings]]
        tenant = "acme"
        limits = { requests = 3 }
        [[ceilings]]
        tenant = "acme"
        api_key = "k"
        limits = { requests = 1 }
        """
    )
    found = Ceilings(file.ceilings, {})

    principal = Principal(organisation="o", tenant="acme", team="red", api_key="k")
    amounts = [
        None if each is None else each.limits[0].amount
        for each in map(found.of, keys_of(principal))
    ]

    assert amounts == [None, 3, None, 1]


def test_the_longer_name_wins():
    """[quota R35] A tenant's ceiling in one organisation stands for the general one there."""
    desk = Desk(ceilings={ACME: limits(200), IN_NORTH: limits(300)})

    assert len(desk.fill(principal=NORTH)) == 3
    assert len(desk.fill(principal={"organisation": "south"})) == 2


def test_tenants_of_one_name_in_two_organisations_count_apart():
    """[quota R32] They have one ceiling each, and not one together."""
    desk = Desk(ceilings={ACME: limits(200)})

    for organisation in ("north", "south"):
        assert len(desk.fill(principal={"organisation": organisation})) == 2


def test_a_ceiling_may_be_taken_away_again():
    """[quota R63] Then the shorter name holds, then the level's, then nothing."""
    desk = Desk(ceilings={ACME: limits(200)}, default_ceilings={Level.TENANT: limits(100)})
    desk.governor.update_limits(ceilings={IN_NORTH: limits(300)})
    key = keys_of(Principal(organisation="north", tenant="acme"))[-1]
    of = desk.governor._core._ceilings.of

    found = [of(key)]
    for each in (IN_NORTH, ACME):
        desk.governor.update_limits(ceilings={each: None})
        found.append(of(key))

    assert found == [limits(300), limits(200), limits(100)]


@pytest.mark.parametrize(
    ("within", "order"),
    [
        ((), [()]),
        (("o",), [("o",), ()]),
        (("o", "t"), [("o", "t"), ("t",), ("o", None), ()]),
        (("o", None), [("o", None), ()]),
        (
            ("o", "t", "m"),
            [
                ("o", "t", "m"),
                ("t", "m"),
                ("o", None, "m"),
                ("o", "t", None),
                ("m",),
                ("t", None),
                ("o", None, None),
                (),
            ],
        ),
    ],
    ids=repr,
)
def test_more_ids_come_before_fewer_and_inner_before_outer(within, order):
    """[quota R32] Which of several ceilings is taken is no accident."""
    named = {
        BucketKey(Level.API_KEY, "k", each): limits(place) for place, each in enumerate(order, 1)
    }
    key = BucketKey(Level.API_KEY, "k", within)

    found = []
    while named:
        taken = Ceilings(named, {}).of(key)
        found.append(next(each for each, own in named.items() if own == taken))
        del named[found[-1]]

    assert [each.within for each in found] == order


@pytest.mark.parametrize("watched", [[ACME], [IN_NORTH], [Level.TENANT]], ids=repr)
def test_what_is_watched_is_named_alike(watched):
    """[quota R62] A switch for a bucket reaches it by each of its names."""
    desk = Desk(ceilings={ACME: limits(200)}, watched=watched)

    assert len(desk.fill(principal=NORTH)) == 10


def test_what_is_watched_reaches_nobody_else():
    """[quota R62] Another organisation's tenant keeps its ceiling."""
    found = Watched([IN_NORTH])

    assert IN_NORTH in found
    assert ACME not in found
    assert BucketKey(Level.TENANT, "acme", ("south",)) not in found


@pytest.mark.parametrize(
    "key",
    [
        BucketKey(Level.TENANT, "acme", "north"),  # type: ignore[arg-type]
        BucketKey(Level.TENANT, "acme", (None,)),
        BucketKey(Level.TENANT, "acme", ("group", "north")),
        BucketKey(Level.ORGANISATION, "north", ("group",)),
        BucketKey(Level.MODEL_PROFILE, "small", ("acme",)),
        BucketKey(Level.TENANT, "acme", (1,)),  # type: ignore[arg-type]
        BucketKey(Level.TENANT, ""),
        BucketKey("tenant", "acme"),  # type: ignore[arg-type]
        BucketKey(Level.TENANT, 7),  # type: ignore[arg-type]
        (Level.TENANT, "acme", ()),
    ],
    ids=repr,
)
def test_a_name_that_nobody_has_is_refused(key):
    """[quota R13] What would hold for nobody would be no limit at all, in silence."""
    for make in (lambda: Ceilings({key: limits(1)}, {}), lambda: Watched([key])):
        with pytest.raises(ConfigurationError, match="expected"):
            make()
