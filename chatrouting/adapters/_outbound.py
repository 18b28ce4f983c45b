"""What more than one API wants written in the same way. Pure."""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from chatrouting.contents import DataContent, ToolCallContent

#: Stands before a result whose call is gone.
ORPHAN: Final = "Result of an earlier tool call:"
#: Stands for the result of a call that has none.
NOT_CARRIED_OUT: Final = "Error: the call was not carried out."


def data_url(content: DataContent) -> str:
    """Write bytes as a data URL."""
    return f"data:{content.media_type};base64,{base64.b64encode(content.data).decode('ascii')}"


def arguments_text(call: ToolCallContent) -> str:
    """Write arguments as JSON text: the model's own text where it still says the same."""
    if call.raw_arguments is not None and _spells(call.raw_arguments, call.arguments):
        return call.raw_arguments
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def _spells(raw: str, arguments: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(raw) == dict(arguments))
    except ValueError:
        return False
