"""The router that goes by meaning: a request goes where similar utterances belong.

The idea, and the meaning of `mean` and `sum`, are those of the semantic router of
Microsoft.Extensions.AI; thresholds for each route are those of semantic-router.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from anyio import to_thread
from anyio.lowlevel import checkpoint
from typing_extensions import override

from chatrouting._closing import close_all
from chatrouting.client import ChatClient, EmbeddingGenerator
from chatrouting.errors import ClientClosedError, ConfigurationError
from chatrouting.messages import ChatMessage, MessagesInput, as_messages
from chatrouting.routing._settings import Listener
from chatrouting.routing.context import RoutingContext, Selected, Selection
from chatrouting.routing.router import RoutingChatClient
from chatrouting.semantic._embedding import Embedder
from chatrouting.semantic._live import LiveIndex, check_dimension
from chatrouting.semantic.decision import (
    DEFAULT_ROUTE,
    DecisionReason,
    DecisionRule,
    SemanticDecision,
    keep_decision,
)
from chatrouting.semantic.profiles import ClientT, ProfilesInput, read_profiles
from chatrouting.semantic.scoring import ScoreAggregation, Scoring
from chatrouting.semantic.store import FilePath
from chatrouting.semantic.texts import TextExtractor, last_user_text
from chatrouting.semantic.thresholds import Label, ThresholdFit, fit_thresholds

OnEmbeddingError: TypeAlias = Literal["raise", "default"]

logger = logging.getLogger("chatrouting.semantic")


class SemanticRoutingChatClient(RoutingChatClient):
    """Sends a request to the client whose utterances its text is most like.

    The best route must reach its threshold, which is inclusive, and lead by the margin; if not,
    the request goes to the default client, whose route has the name "default". So does a request
    without text, and one whose vector, or whose utterances' vectors, have no direction.

    Vectors of the utterances are made at the first request with text, once however many requests
    wait for them. A build that fails or is cancelled is not kept: the next request builds.
    Safe for many concurrent tasks, also of several event loops.
    """

    _routes_parameter = "profiles"

    def __init__(
        self,
        embedding_generator: EmbeddingGenerator,
        profiles: ProfilesInput[ClientT],
        default_client: ChatClient,
        *,
        score_threshold: float = 0.3,
        top_k: int = 1,
        score_aggregation: ScoreAggregation = "mean",
        margin: float = 0.0,
        on_embedding_error: OnEmbeddingError = "raise",
        embedding_timeout: float | None = None,
        batch_size: int | None = None,
        query_cache_size: int = 0,
        extract_text: TextExtractor = last_user_text,
        leave_open: bool = False,
        on_routing_update: Listener | None = None,
        name: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Build a semantic router.

        Args:
            embedding_generator: Makes the vectors; closed with this router.
            profiles: What belongs to which client: `(client, utterances)` pairs, with a threshold
                of the route's own as third item if need be; a mapping of names to those; or a
                mapping of clients to utterances, or to `(utterances, threshold)`.
            default_client: Gets what belongs to none of them.
            score_threshold: The least score of routes without a threshold of their own. Its range
                is that of the scores: -1 to 1, by `sum` -top_k to top_k. It depends on the encoder
                and on `score_aggregation`; `fit_thresholds` finds better ones.
            top_k: How many of the nearest utterances of all routes `mean` and `sum` look at.
            score_aggregation: How cosines become the score of a route; see
                `chatrouting.semantic.scoring`.
            margin: By how much the best route must lead over the second.
            on_embedding_error: What becomes of a request whose text cannot be embedded: "raise"
                the error, or ask the "default" client. A `ConfigurationError` is always raised.
            embedding_timeout: Seconds for one call of the generator; None for no limit.
            batch_size: Most texts in one call of the generator; None for no limit.
            query_cache_size: How many queries are remembered, with their vectors.
            extract_text: Finds the text to go by; `last_user_texts(n)` takes more of them.
            leave_open: Closing the router leaves the clients and the generator open.
            on_routing_update: As for `RoutingChatClient`.
            name: As for `RoutingChatClient`.
            clock: As for `RoutingChatClient`.

        Raises:
            TypeError: If the generator, the profiles or the default client are None.
            ConfigurationError: If there is no profile, one has no utterances or a blank one, or a
                setting is out of range.
        """
        self._embedder = Embedder(
            embedding_generator,
            timeout=embedding_timeout,
            batch_size=batch_size,
            query_cache_size=query_cache_size,
        )
        if default_client is None:
            raise TypeError("default_client is None; expected a chat client.")
        if not callable(extract_text):
            raise TypeError(f"extract_text is {extract_text!r}; expected a function.")
        if on_embedding_error not in get_args(OnEmbeddingError):
            raise ConfigurationError(
                f"on_embedding_error is {on_embedding_error!r}; expected 'raise' or 'default'."
            )
        read = read_profiles(profiles)
        super().__init__(
            routes={
                **dict(zip(read.names, read.clients, strict=True)),
                DEFAULT_ROUTE: default_client,
            },
            leave_open=leave_open,
            on_routing_update=on_routing_update,
            name=name,
            clock=clock,
        )
        self._generator = embedding_generator
        self._keeps_generator = leave_open
        self._is_given_up = False
        self._on_embedding_error = on_embedding_error
        self._extract_text = extract_text
        self._scoring = Scoring(score_aggregation, top_k)
        self._scoring.check_threshold(score_threshold, "score_threshold")
        self._rule = DecisionRule.checked(
            self._scoring,
            {
                route: score_threshold if own is None else own
                for route, own in zip(read.names, read.thresholds, strict=True)
            },
            margin,
        )
        self._live = LiveIndex(dict(zip(read.names, read.utterances, strict=True)), self._embedder)

    @property
    def utterances(self) -> Mapping[str, tuple[str, ...]]:
        """What belongs to each route now; read-only."""
        return MappingProxyType(dict(self._live.corpus.utterances))

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The least score of each route; read-only."""
        rule = self._rule
        return MappingProxyType(dict(zip(rule.positions, rule.thresholds, strict=True)))

    @property
    def margin(self) -> float:
        """By how much the best route must lead."""
        return self._rule.margin

    @override
    async def select_client(self, context: RoutingContext) -> Selected:
        """Return the route of the best score, or that of the default client.

        How it came about, the selection and the attempt's record tell: their `detail` is the
        `SemanticDecision`.
        """
        decision = await self._decide(context.messages)
        keep_decision(context, decision)
        logger.debug(
            "semantic.decision router=%s route=%s reason=%s best=%s score=%s threshold=%s lead=%s "
            "request_id=%s scores: %s",
            self.name,
            decision.route,
            decision.reason.value,
            decision.best,
            decision.score,
            decision.threshold,
            decision.lead,
            context.request_id,
            decision.scores,
        )
        return Selection(decision.route, reason=str(decision), detail=decision)

    async def explain(self, messages: MessagesInput) -> SemanticDecision:
        """Say where a request would go, and why, without asking a client.

        Args:
            messages: A text, or a conversation.

        Raises:
            ClientClosedError: If the router was closed.
            Exception: What the embedding generator raises, unless that leads to the default.
        """
        self._check_in_use()
        return await self._decide(as_messages(messages))

    async def explain_many(self, texts: Iterable[str]) -> list[SemanticDecision]:
        """Say where many texts would go, in a fraction of the time that one after the other takes.

        Args:
            texts: Each as if it were all that the user said; a blank one goes to the default.

        Raises:
            ClientClosedError: If the router was closed.
            Exception: What the embedding generator raises, whatever `on_embedding_error` says.
        """
        self._check_in_use()
        asked = list(texts)
        rule, scoring = self._rule, self._scoring
        decisions = [rule.undecided(DecisionReason.NO_TEXT)] * len(asked)
        places = [place for place, text in enumerate(asked) if text.strip()]
        if not places:
            return decisions
        index = await self._live.get()
        queries = await self._embedder.embed([asked[place] for place in places])
        check_dimension(index, queries)

        def decide() -> list[SemanticDecision]:
            return [rule.decide(scored) for scored in index.score_many(queries, scoring)]

        is_long = index.is_work_for_a_thread(len(places))
        decided = await to_thread.run_sync(decide) if is_long else decide()
        for place, decision in zip(places, decided, strict=True):
            decisions[place] = decision
        return decisions

    async def warm_up(self) -> None:
        """Make the vectors of the utterances now, so that no request has to wait for them.

        Raises:
            ClientClosedError: If the router was closed.
            EmbeddingError: If the generator returns no usable vectors.
            Exception: What the generator raises.
        """
        self._check_in_use()
        await self._live.get()

    async def add_utterances(self, route: str, utterances: Iterable[str]) -> None:
        """Add utterances to a route. Requests see all of them or none.

        Raises:
            ConfigurationError: If there is no such route, or an utterance is blank.
            EmbeddingError: If the generator returns no usable vectors; then nothing is added.
            Exception: What the generator raises; likewise.
        """
        self._check_in_use()
        await self._live.add(route, utterances)

    async def remove_utterances(self, route: str, utterances: Iterable[str]) -> None:
        """Remove utterances from a route. Requests see all of them or none.

        Raises:
            ConfigurationError: If there is no such route or utterance, or none would be left.
        """
        self._check_in_use()
        await self._live.remove(route, utterances)

    async def save(self, path: FilePath) -> None:
        """Write the utterances and their vectors to a file, for `load`.

        Raises:
            OSError: If the file cannot be written.
            Exception: As `warm_up` does.
        """
        self._check_in_use()
        await self._live.save(path, self._encoder_name)

    async def load(self, path: FilePath) -> None:
        """Take the vectors from a file that `save` wrote, instead of making them.

        One utterance is embedded, to see that the encoder is the one that made the file. Routes of
        the file that this router does not have are left out.

        Raises:
            OSError: If the file cannot be read.
            ConfigurationError: If it is no such file, holds other utterances than this router,
                or was made by another encoder.
            Exception: What the generator raises.
        """
        self._check_in_use()
        await self._live.load(path, self._encoder_name)

    async def fit_thresholds(
        self,
        queries: Iterable[str],
        labels: Iterable[Label],
        *,
        validation: tuple[Iterable[str], Iterable[Label]] | None = None,
        folds: int = 5,
        minimum_rejection: float | None = None,
    ) -> ThresholdFit:
        """Find thresholds for all routes, and a margin; `use_thresholds` puts them in force.

        Args:
            queries: What users might send; no utterances of the routes, which all score 1.
            labels: The route of each query, or None for one that belongs to no route.
            validation: Queries and labels to report on. None: cross-validation.
            folds: See `chatrouting.semantic.thresholds.fit_thresholds`.
            minimum_rejection: See there.

        Raises:
            ConfigurationError: If the labels do not fit, or there are too few.
            Exception: As `explain_many` does.
        """
        held_out = None
        if validation is not None:
            held_out = await self.explain_many(validation[0]), list(validation[1])
        fit = partial(
            fit_thresholds,
            await self.explain_many(queries),
            list(labels),
            validation=held_out,
            folds=folds,
            minimum_rejection=minimum_rejection,
        )
        return await to_thread.run_sync(fit)

    def use_thresholds(
        self, thresholds: Mapping[str, float], *, margin: float | None = None
    ) -> None:
        """Judge the requests to come by other thresholds.

        Args:
            thresholds: By route; routes left out keep theirs.
            margin: None for the one in force.

        Raises:
            ConfigurationError: If there is no such route, or a number is out of range.
        """
        for route in thresholds:
            self._live.corpus.position(route)
        self._rule = DecisionRule.checked(
            self._scoring,
            {**self.thresholds, **thresholds},
            self.margin if margin is None else margin,
        )

    @override
    async def aclose(self) -> None:
        """Close the generator and each client, once; with `leave_open` nothing.

        Raises:
            Exception: What closing one of them raised; the others are closed all the same.
        """
        if self._is_given_up:
            return
        self._is_given_up = True
        closers = [super().aclose]
        closed = {id(client) for client in self.routes.values()}
        if not self._keeps_generator and id(self._generator) not in closed:
            closers.append(self._generator.aclose)
        await close_all(closers)

    def _check_in_use(self) -> None:
        if self._is_given_up:
            raise ClientClosedError(
                f"router {self.name or type(self).__name__!r} was closed; use it before aclose."
            )

    @property
    def _encoder_name(self) -> str:
        return type(self._generator).__qualname__

    async def _decide(self, messages: Sequence[ChatMessage]) -> SemanticDecision:
        rule = self._rule
        text = self._extract_text(messages)
        if text is None or not text.strip():
            return rule.undecided(DecisionReason.NO_TEXT)
        try:
            index = self._live.corpus.index or await self._live.get()
            query = await self._embedder.embed_query(text)
            check_dimension(index, query)
        except ConfigurationError:
            raise
        except Exception as error:
            if self._on_embedding_error == "raise":
                raise
            await checkpoint()  # the error may be what the generator made of a cancellation
            logger.warning(
                "semantic.embedding_failed router=%s error=%s", self.name, type(error).__name__
            )
            # Without its frames, which hold the conversation.
            return rule.undecided(DecisionReason.EMBEDDING_ERROR, error.with_traceback(None))
        if index.is_work_for_a_thread(1):
            return rule.decide(await to_thread.run_sync(index.score, query, self._scoring))
        return rule.decide(index.score(query, self._scoring))
