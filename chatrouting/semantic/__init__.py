"""The room of semantic routing: a request goes where similar utterances belong.

In come a conversation and an embedding generator's vectors; out goes the name of a route, with the
score of every route as the reason. `router` is the chat client, `decision` what it says,
`scoring` and `index` how it counts, `thresholds` how good is good enough. Encoders: `callable`,
`cached`, `wordllama`, and `chatrouting.adapters.embeddings`. numpy is loaded with the first
vectors. Next room: `routing`, which asks the client.
"""

from chatrouting.semantic.cached import CachedEmbeddingGenerator
from chatrouting.semantic.callable import CallableEmbeddingGenerator
from chatrouting.semantic.decision import (
    DecisionReason,
    RouteScores,
    SemanticDecision,
    decision_of,
)
from chatrouting.semantic.profiles import RouteProfile
from chatrouting.semantic.router import SemanticRoutingChatClient
from chatrouting.semantic.scoring import ScoreAggregation
from chatrouting.semantic.texts import last_user_text, last_user_texts
from chatrouting.semantic.thresholds import ThresholdFit, fit_thresholds
from chatrouting.semantic.wordllama import WordLlamaEmbeddingGenerator

__all__ = [
    "CachedEmbeddingGenerator",
    "CallableEmbeddingGenerator",
    "DecisionReason",
    "RouteProfile",
    "RouteScores",
    "ScoreAggregation",
    "SemanticDecision",
    "SemanticRoutingChatClient",
    "ThresholdFit",
    "WordLlamaEmbeddingGenerator",
    "decision_of",
    "fit_thresholds",
    "last_user_text",
    "last_user_texts",
]
