"""The same member for the same key, as long as it is ready and not overloaded.

Providers keep the beginning of a conversation in a cache of each deployment; who spreads an agent's
calls over N of them finds it there once in N times. Members are ranked by rendezvous hashing
(Thaler and Ravishankar, 1998): if one leaves, only its keys move. The load is bounded as in
"Consistent Hashing with Bounded Loads" (Mirrokni, Thorup and Zadimoghaddam, 2018).
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from chatrouting.contents import TextContent
from chatrouting.messages import ChatMessage, Role
from chatrouting.options import ChatOptions

_MASK: Final = (1 << 64) - 1
#: Of the golden ratio, odd: spreads neighbouring numbers over all bits.
_SPREAD: Final = 0x9E3779B97F4A7C15
#: What providers keep begins at about this many tokens, of four letters each.
_PREFIX_LETTERS: Final = 4 * 1024


def hash_text(text: str) -> int:
    """Return 64 bits that are the same in every process."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def affinity_rank(key: int, member: int) -> int:
    """Return how much a key leans to a member, both given as their hashes; the highest wins."""
    mixed = (key ^ member) * _SPREAD & _MASK
    return (mixed ^ mixed >> 32) * _SPREAD & _MASK


def stable_prefix(messages: Sequence[ChatMessage], options: ChatOptions) -> str | None:
    """Return what the calls of one agent begin with, as a key: its instructions and its tools.

    Returns:
        None if there are neither, so that nothing tells one conversation from another.
    """
    parts = [options.instructions or ""]
    for message in messages:
        if message.role is not Role.SYSTEM:
            break
        parts += [each.text for each in message.contents if isinstance(each, TextContent)]
    for tool in options.tools or ():
        parts += [tool.name, tool.description or "", str(tool.parameters or "")]
    text = "\n".join(part[:_PREFIX_LETTERS] for part in parts if part)
    return text[:_PREFIX_LETTERS] or None
