"""A multipart form, read into the object that the same request would be as JSON."""

from email.message import Message
from email.parser import BytesParser

from chatrouting.testing._json import JsonObject


def read_form(content_type: str, body: bytes) -> JsonObject | None:
    """Read a form; None if it is none.

    Returns:
        Texts by name. A file is an object of `filename`, `content_type` and `data` (bytes). A name
        that ends in "[]" holds a list.
    """
    if not content_type.lower().startswith("multipart/form-data"):
        return None
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    form: JsonObject = {}
    for part in BytesParser().parsebytes(head + body).walk():
        name = part.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            continue  # the form itself
        if name.endswith("[]"):
            form.setdefault(name.removesuffix("[]"), []).append(_value(part))
        else:
            form[name] = _value(part)
    return form


def _value(part: Message) -> str | JsonObject:
    # Bytes by construction: only a part that holds further parts decodes to anything else.
    data = bytes(part.get_payload(decode=True) or b"")
    filename = part.get_filename()
    if filename is None:
        return data.decode()
    return {"filename": filename, "content_type": part.get_content_type(), "data": data}
