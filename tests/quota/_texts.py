"""Requests as applications send them, made up from a seed: chats, code, JSON, other scripts."""

import base64
import json
from random import Random

from chatrouting.contents import TextContent, ToolCallContent, ToolResultContent
from chatrouting.messages import ChatMessage, Role
from chatrouting.options import ChatOptions, Tool

ENGLISH = [
    "Could you tell me why my last invoice is higher than the one before?",
    "I moved the meeting to Thursday, since two of the engineers are travelling.",
    "Please summarise the following report in three short paragraphs.",
    "The delivery was due on 14 March 2026, but the parcel never arrived.",
    "In the third quarter revenue rose by 12.5 percent, mostly in the northern region.",
    "We would rather keep the old contract until the new supplier has been audited.",
    "Thanks, that helps; what happens if the customer pays by bank transfer instead?",
    "Write a friendly answer that explains the delay without promising a date.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "He closed the door quietly, waited for a moment and then walked down the stairs.",
]
LATVIAN = [
    "Rīgā šodien ir saulains laiks, un cilvēki pastaigājas gar Daugavu.",
    "Lūdzu, paskaidrojiet, kāpēc mans pēdējais rēķins ir lielāks nekā iepriekšējais.",
    "Vakarā gaidāms lietus, tāpēc lietussargu labāk paņemt līdzi.",
    "Sanāksme pārcelta uz ceturtdienu, jo divi inženieri atrodas komandējumā.",
    "Uzrakstiet draudzīgu atbildi, kurā nav solīts konkrēts piegādes datums.",
]
CHINESE = [
    "今天里加阳光明媚，人们沿着道加瓦河散步。",
    "请解释一下为什么我上个月的账单比之前的高。",
    "由于两位工程师正在出差，会议改到了星期四。",
    "第三季度收入增长了百分之十二点五，主要来自北部地区。",
    "请写一封友好的回信，说明延误的原因，但不要承诺日期。",
]
CODE = [
    "def total(items: list[Item]) -> float:\n",
    "    return sum(item.price * item.count for item in items if not item.is_free)\n\n",
    "class Basket:\n    def __init__(self, owner: str) -> None:\n        self.owner = owner\n",
    "        self._items: dict[str, Item] = {}\n\n",
    "    async def add(self, item: Item) -> None:\n        async with self._lock:\n",
    "            self._items.setdefault(item.name, item).count += 1\n",
    'if __name__ == "__main__":\n    sys.exit(main(sys.argv[1:]))\n',
    "for (let i = 0; i < rows.length; i += 1) { render(rows[i], columns); }\n",
    "SELECT name, count(*) FROM orders WHERE created_at > now() - interval '7 days';\n",
]
TOOL = Tool(
    "find_orders",
    "Finds the orders of a customer.",
    {
        "type": "object",
        "properties": {
            "customer": {"type": "string", "description": "Id of the customer"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        "required": ["customer"],
    },
)
WITH_TOOLS = ChatOptions(tools=(TOOL,))
PLAIN = ChatOptions()


def _sentences(rng: Random, pool: list[str], separator: str) -> str:
    return separator.join(rng.choices(pool, k=max(2, int(rng.lognormvariate(2.5, 0.7)))))


def _chat(rng: Random, pool: list[str], separator: str = " ") -> tuple[ChatMessage, ...]:
    turns = [
        ChatMessage(
            Role.USER if turn % 2 == 0 else Role.ASSISTANT, _sentences(rng, pool, separator)
        )
        for turn in range(rng.choice([1, 1, 3, 5]))
    ]
    return (ChatMessage(Role.SYSTEM, "You answer the customers of a shop. Be brief."), *turns)


def _order(rng: Random) -> dict[str, object]:
    return {
        "id": rng.randrange(10**8),
        "customer": f"C-{rng.randrange(10**5)}",
        "status": rng.choice(["paid", "shipped", "returned", "waiting for stock"]),
        "total": round(rng.uniform(1, 900), 2),
        "note": rng.choice(ENGLISH),
    }


def chat(rng):
    return _chat(rng, ENGLISH), PLAIN


def latvian(rng):
    return _chat(rng, LATVIAN), PLAIN


def chinese(rng):
    return _chat(rng, CHINESE, ""), PLAIN


def code(rng):
    question = TextContent("Review this file:\n" + "".join(rng.choices(CODE, k=rng.randint(5, 90))))
    return (ChatMessage(Role.USER, (question,)),), PLAIN


def agent(rng):
    """A turn of an agent: a question, a call of a tool, its result in JSON."""
    orders = [_order(rng) for _ in range(rng.randint(1, 30))]
    return (
        ChatMessage(Role.SYSTEM, "You look after the orders of a shop."),
        ChatMessage(Role.USER, rng.choice(ENGLISH)),
        ChatMessage(Role.ASSISTANT, (ToolCallContent("c1", "find_orders", {"customer": "C-1"}),)),
        ChatMessage(Role.TOOL, (ToolResultContent("c1", json.dumps(orders)),)),
    ), WITH_TOOLS


def attachment(rng):
    """Words, and a file pasted as base64."""
    pasted = base64.b64encode(rng.randbytes(rng.randint(500, 6_000))).decode()
    return (ChatMessage(Role.USER, f"{rng.choice(ENGLISH)} Here is the file:\n{pasted}"),), PLAIN


def mixed(rng):
    """What one route of a general assistant sees."""
    return rng.choices([chat, code, agent], weights=[6, 3, 1])[0](rng)


KINDS = {
    "chat": chat,
    "latvian": latvian,
    "chinese": chinese,
    "code": code,
    "agent": agent,
    "attachment": attachment,
    "mixed": mixed,
}
