"""What every chat client promises, as one check to run against a client of one's own.

    async def test_my_client_keeps_the_contract():
        await check_chat_client(lambda: MyChatClient("http://127.0.0.1:8080"))

Runs on asyncio and trio, in real and in virtual time, under any test runner.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast, final

import anyio

from chatrouting import _cancellation
from chatrouting.client import ChatClient
from chatrouting.options import ChatOptions, RoutingHints
from chatrouting.testing._contract_rules import BASIC_RULES, RULES, Rule
from chatrouting.testing._contract_trial import RuleBrokenError, Trial

__all__ = ["ContractViolation", "check_chat_client"]

ClientT = TypeVar("ClientT", bound=ChatClient)

#: What providers take whose adapters drop what they do not know; with mappings inside that a
#: careless client might change.
_OPTIONS: Final = ChatOptions(
    temperature=0.0,
    max_output_tokens=64,
    metadata={"user_id": "contract"},
    routing=RoutingHints(tags={"purpose": "contract"}),
)


@final
class ContractViolation(AssertionError):  # noqa: N818  # it is a failed assertion of a test
    """A client breaks rules of the contract.

    Attributes:
        broken: The sentences of the rules, with what was seen instead.
    """

    def __init__(self, broken: dict[str, str]) -> None:
        lines = [f"- {sentence} Here: {seen}" for sentence, seen in broken.items()]
        super().__init__("\n".join(["the chat client breaks its contract:", *lines]))
        self.broken = broken


async def check_chat_client(
    make_client: Callable[[], ClientT],
    *,
    make_waiting_client: Callable[[], ClientT] | None = None,
    count_requests: Callable[[ClientT], int] | None = None,
    count_open: Callable[[ClientT], int] | None = None,
    prompt: str = "Say hello.",
    options: ChatOptions = _OPTIONS,
    time_limit: float = 5.0,
) -> tuple[str, ...]:
    """Check every rule of the contract that the arguments allow.

    Args:
        make_client: Makes a client that is ready, and that answers `prompt` the same each time.
            Called for each rule; the clients are closed.
        make_waiting_client: Makes a client that is still waiting 50 ms after it was asked, before
            its first update or after it. For the rules about cancellation.
        count_requests: Requests that a client has sent so far.
        count_open: Requests that a client has in flight, or whose stream is open.
        prompt: What is asked.
        options: Given where the rule about the caller's options is checked.
        time_limit: Seconds for each rule.

    Returns:
        The sentences of the rules that were checked, all of which hold.

    Raises:
        ContractViolation: If a rule is broken; names all that are.
    """
    trial = Trial(
        make_client=make_client,
        make_waiting_client=make_waiting_client,
        count_requests=cast("Callable[[Any], int] | None", count_requests),
        count_open=cast("Callable[[Any], int] | None", count_open),
        prompt=prompt,
        options=options,
    )
    return (
        *await _check(BASIC_RULES, trial, time_limit),
        *await _check(RULES, trial, time_limit),
    )


async def _check(rules: Iterable[Rule], trial: Trial, time_limit: float) -> tuple[str, ...]:
    chosen = [rule for rule in rules if rule.applies(trial)]
    seen = {rule.sentence: await _what_is_wrong(rule, trial, time_limit) for rule in chosen}
    broken = {sentence: wrong for sentence, wrong in seen.items() if wrong is not None}
    if broken:
        raise ContractViolation(broken)
    return tuple(seen)


async def _what_is_wrong(rule: Rule, trial: Trial, time_limit: float) -> str | None:
    baseline = await _cancellation.cancel_baseline()
    try:
        with anyio.move_on_after(time_limit) as scope:
            await rule.check(trial)
    except RuleBrokenError as broken:
        return str(broken)
    except BaseException as error:
        # A client that raises a cancellation of its own must not end the whole check.
        foreign = _cancellation.is_foreign_cancellation(error, baseline)
        if not (isinstance(error, Exception) or foreign):
            raise
        return f"it raised {error!r}"
    return f"it was not done after {time_limit} s" if scope.cancelled_caught else None
