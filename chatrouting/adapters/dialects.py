"""How the servers that speak Chat Completions differ, as values.

One flag for each difference that needs something done when a request is written. What can be read
without knowing the server is read from all of them alike: error bodies of every shape, usage in
every place, `stop` beside tool calls, rate-limit headers of every family.

    OpenAIChatClient(client, "my-model", dialect=dialects.VLLM)
    OpenAIChatClient(client, "my-model", dialect=replace(dialects.VLLM, needs_alternation=False))

What providers accept changes; correct a preset with `dataclasses.replace`.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one server takes. The defaults are OpenAI's own.

    Attributes:
        name: Who it is, in errors and metadata, and as the origin of reasoning.
        max_tokens_field: Where the limit of the answer goes.
        system_role: Role of system messages.
        seed_field: Where the seed goes.
        required_tool_choice: Spelling of "call some tool".
        dropped_options: Fields of `ChatOptions` without which the answer means the same and that
            the server does not take; they are left out with a log line.
        supports_stream_options: Takes `stream_options`, by which usage is asked for.
        supports_parallel_tool_calls: Takes `parallel_tool_calls`.
        supports_strict: Takes `strict` on tools and schemas.
        supports_json_schema: Holds answers to a schema. If not, a schema is refused.
        supports_forced_tools: Obeys a tool choice. If not, "required" or a name is refused.
        supports_names: Takes `name` on messages.
        supports_refusals: Takes `refusal` on assistant messages. If not, it goes as text.
        image_url_allowed: Fetches images. If not, image URLs are refused, and bytes must be sent.
        tool_call_id_style: "openai": up to 40 characters; "mistral": nine letters and digits.
        keep_tool_call_extras: Wants further fields of tool calls back.
        reasoning_field: Where reasoning is sent back: "reasoning", "reasoning_content", or
            "reasoning_details", which are sent as they came.
        replay_reasoning: When reasoning of this very server is sent back: never, on messages with
            tool calls, or always.
        needs_alternation: System text may only open the conversation, once, and roles alternate.
    """

    name: str
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    system_role: Literal["system", "developer"] = "system"
    seed_field: str = "seed"
    required_tool_choice: str = "required"
    dropped_options: frozenset[str] = frozenset({"top_k"})
    supports_stream_options: bool = True
    supports_parallel_tool_calls: bool = True
    supports_strict: bool = True
    supports_json_schema: bool = True
    supports_forced_tools: bool = True
    supports_names: bool = True
    supports_refusals: bool = True
    image_url_allowed: bool = True
    tool_call_id_style: Literal["openai", "mistral"] = "openai"
    keep_tool_call_extras: bool = False
    reasoning_field: Literal["reasoning", "reasoning_content", "reasoning_details"] = "reasoning"
    replay_reasoning: Literal["never", "with_tools", "always"] = "never"
    needs_alternation: bool = False


OPENAI: Final = Dialect(name="openai")

AZURE: Final = replace(OPENAI, name="azure")

#: What a server that only imitates the API can be trusted with.
_COMPATIBLE: Final = Dialect(
    name="compatible",
    max_tokens_field="max_tokens",
    dropped_options=frozenset({"top_k", "metadata"}),
    supports_refusals=False,
)

#: Thought signatures travel as extras of the tool calls and must come back.
GEMINI: Final = replace(
    _COMPATIBLE, name="gemini", supports_strict=False, keep_tool_call_extras=True
)

#: Answers 422 to any field it does not know.
MISTRAL: Final = replace(
    _COMPATIBLE,
    name="mistral",
    seed_field="random_seed",
    required_tool_choice="any",
    dropped_options=frozenset({"top_k", "metadata", "reasoning_effort"}),
    supports_stream_options=False,
    supports_names=False,
    tool_call_id_style="mistral",
)

GROQ: Final = replace(_COMPATIBLE, name="groq", max_tokens_field="max_completion_tokens")

#: Wants its reasoning back on messages with tool calls, and refuses it elsewhere.
DEEPSEEK: Final = replace(
    _COMPATIBLE,
    name="deepseek",
    dropped_options=frozenset({"top_k", "metadata", "seed"}),
    supports_parallel_tool_calls=False,
    supports_strict=False,
    supports_json_schema=False,
    reasoning_field="reasoning_content",
    replay_reasoning="with_tools",
)

OPENROUTER: Final = replace(
    _COMPATIBLE,
    name="openrouter",
    dropped_options=frozenset({"metadata"}),
    keep_tool_call_extras=True,
    reasoning_field="reasoning_details",
    replay_reasoning="always",
)

#: Chat templates may forbid system text in the middle, and two messages of one role in a row.
VLLM: Final = replace(
    _COMPATIBLE,
    name="vllm",
    dropped_options=frozenset({"metadata"}),
    reasoning_field="reasoning_content",
    needs_alternation=True,
)

OLLAMA: Final = replace(
    _COMPATIBLE,
    name="ollama",
    supports_parallel_tool_calls=False,
    supports_strict=False,
    supports_forced_tools=False,
    supports_names=False,
    image_url_allowed=False,
)

LLAMA_CPP: Final = replace(
    _COMPATIBLE,
    name="llama_cpp",
    dropped_options=frozenset({"metadata"}),
    reasoning_field="reasoning_content",
    needs_alternation=True,
)
