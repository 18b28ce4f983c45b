"""OpenAI Images: one tiny picture for each one asked for, the same for the same prompt."""

import base64
import hashlib
import struct
import zlib

from chatrouting.testing._json import JsonObject
from chatrouting.testing._turn import CREATED, Turn


def whole(turn: Turn) -> JsonObject:
    """Render a list of images, as base64 or, where the request says so, as URLs."""
    prompt = str(turn.body.get("prompt", ""))
    count = int(turn.body.get("n") or 1)
    as_url = turn.body.get("response_format") == "url"
    answer: JsonObject = {"created": CREATED, "data": [], "output_format": "png"}
    for index in range(count):
        data = picture(f"{index} {prompt}")
        encoded = base64.b64encode(data).decode()
        url = f"https://images.example/{hashlib.sha256(data).hexdigest()}.png"
        answer["data"].append({"url": url} if as_url else {"b64_json": encoded})
    usage = turn.reply.usage
    if usage is not None:
        answer["usage"] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }
    return answer | dict(turn.reply.extra_fields)


def picture(seed: str) -> bytes:
    """Write a PNG of one pixel, coloured by `seed`."""
    red, green, blue = hashlib.sha256(seed.encode()).digest()[:3]
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes([0, red, green, blue]))
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
