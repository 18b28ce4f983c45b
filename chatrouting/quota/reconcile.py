"""What follows from the limits that a provider tells: belief is only ever lowered.

Headers are hints. They are rounded, late, for another window than they say, or not there. If the
provider has counted more than was charged here, somebody else uses the key, and the difference is
charged. If it has counted less, nothing is given back: the header may be old, or the provider may
count later.

When the provider counted is not known: when the request came, or when its answer was over. So its
count is compared with the larger of two of ours, when the request was sent and now. Otherwise our
own requests of the time between would be taken for somebody else's.

What follows is said, not done: a `Correction` tells what to charge and which limit to believe.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from chatrouting.options import check_count
from chatrouting.quota.headers import LimitReading
from chatrouting.quota.profiles import ProviderProfile

#: Part of a limit by which counts may differ without meaning anything.
_TOLERANCE: Final = 0.01
#: Windows for which a provider tells its limit for a minute without saying so, seconds.
_UNITS: Final = (60.0, 10.0, 1.0)
_UNIT_TOLERANCE: Final = 0.05
_WINDOW_TOLERANCE: Final = 0.3
#: A limit for a minute is what providers tell of; it is compared with nothing else.
_MINUTE: Final = 60.0


class Place(NamedTuple):
    """One limit of a quota."""

    dimension: str
    window: float  #: Seconds.


class Belief(NamedTuple):
    """What was charged here at a time."""

    limit: float  #: As it is configured, without any headroom.
    used: float  #: Within the window.


@final
@dataclass(frozen=True, slots=True)
class Correction:
    """What one limit of a response means for us.

    Attributes:
        place: Which limit.
        external: Amount to charge to the present, which somebody else has used; 0 if there is none.
        drift: What was charged here less what the provider has counted. Above 0 it counts less,
            or later; that is for a dashboard, nothing is given back.
        limit: The limit to believe from now on, never above the configured one; None for no change.
    """

    place: Place
    external: float
    drift: float
    limit: float | None = None


class _Told(NamedTuple):
    limit: float | None
    remaining: float | None


@final
class Reconciler:
    """What a provider has told of one scope."""

    __slots__ = ("_believed", "_newest", "_observations", "_profile", "_streaks")

    def __init__(self, profile: ProviderProfile, *, observations: int = 3) -> None:
        """Know nothing yet.

        Args:
            profile: Of the provider.
            observations: How often in a row another limit must be told to be believed.

        Raises:
            ConfigurationError: If `observations` is no whole number from 1 on.
        """
        check_count("observations", observations)
        self._profile = profile
        self._observations = observations
        self._newest = -1
        self._believed: dict[Place, float] = {}
        self._streaks: dict[Place, tuple[float, int]] = {}

    def observe(
        self,
        readings: Iterable[LimitReading],
        beliefs: Mapping[Place, Belief],
        present: Mapping[Place, Belief],
        *,
        order: int,
    ) -> tuple[Correction, ...]:
        """Compare what a response told with what was believed when its request was sent.

        Args:
            readings: Of the response.
            beliefs: When the request was sent, itself included.
            present: Now.
            order: Number of the request in the order of sending, from 0 on. A response to one that
                was sent before the newest that was heard of is too old to say anything.

        Returns:
            One for each limit that can be compared.
        """
        if order < self._newest:
            return ()
        self._newest = order
        told = self._told(readings, beliefs)
        return tuple(
            self._compare(place, each, _most_used(beliefs[place], present.get(place)))
            for place, each in told.items()
        )

    def _told(
        self, readings: Iterable[LimitReading], beliefs: Mapping[Place, Belief]
    ) -> dict[Place, _Told]:
        """Bring the readings together by limit: the project's and the organisation's, say."""
        told: dict[Place, _Told] = {}
        for reading in readings:
            if reading.dimension is None or not self._holds(reading):
                continue
            place = _place(reading, beliefs)
            if place is not None:
                known = told.get(place, _Told(None, None))
                told[place] = _Told(
                    _lower(known.limit, reading.limit), _lower(known.remaining, reading.remaining)
                )
        return told

    def _holds(self, reading: LimitReading) -> bool:
        return not reading.scope or reading.scope in self._profile.header_scopes

    def _compare(self, place: Place, told: _Told, belief: Belief) -> Correction:
        limit = self._limit(place, told.limit, belief.limit)
        if told.remaining is None:
            return Correction(place, 0.0, 0.0, limit)
        # Without a limit in the header, what is believed of it is the best that is known.
        whole = told.limit or self._believed.get(place, belief.limit)
        drift = belief.used - (whole - told.remaining)
        rounding = self._profile.header_rounding.get(place.dimension, 0.0)
        is_told_apart = -drift > max(_TOLERANCE * whole, rounding)
        return Correction(place, -drift if is_told_apart else 0.0, drift, limit)

    def _limit(self, place: Place, told: float | None, configured: float) -> float | None:
        """Return a limit to believe that was not believed before."""
        if told is None:
            return None
        before, times = self._streaks.get(place, (told, 0))
        times = times + 1 if told == before else 1
        self._streaks[place] = (told, times)
        believed = self._believed.get(place, configured)
        candidate = min(told, configured)
        if times < self._observations or _is_near(candidate, believed, _TOLERANCE):
            return None
        self._believed[place] = candidate
        return candidate


def _most_used(sent: Belief, present: Belief | None) -> Belief:
    return sent if present is None or present.used <= sent.used else present


def _place(reading: LimitReading, beliefs: Mapping[Place, Belief]) -> Place | None:
    """Find the limit that a reading is about; None if there is none, or that cannot be told."""
    window = reading.window
    if window is None:
        window = _inferred(reading, beliefs)
    if window is None:
        return None
    # A short window is kept a little longer than it is, for the jitter.
    near = [
        place
        for place in beliefs
        if place.dimension == reading.dimension
        and _is_near(place.window, window, _WINDOW_TOLERANCE)
    ]
    return min(near, key=lambda place: abs(place.window - window), default=None)


def _inferred(reading: LimitReading, beliefs: Mapping[Place, Belief]) -> float | None:
    """Tell the window of a limit by its ratio to the one for a minute."""
    minute = beliefs.get(Place(reading.dimension or "", _MINUTE))
    if minute is None or reading.limit is None:
        return None
    for window in _UNITS:
        if _is_near(reading.limit, minute.limit * window / _MINUTE, _UNIT_TOLERANCE):
            return window
    return None


def _is_near(value: float, other: float, tolerance: float) -> bool:
    return abs(value - other) <= tolerance * other


def _lower(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
