"""Writing to the exceptions of others, some of which refuse: frozen dataclasses do.

What Python itself sets on an exception passes such refusals by. So do these.
"""


def set_cause(error: BaseException, cause: BaseException) -> None:
    """Set `error.__cause__`."""
    BaseException.__setattr__(error, "__cause__", cause)


def set_context(error: BaseException, context: BaseException | None) -> None:
    """Set `error.__context__`."""
    BaseException.__setattr__(error, "__context__", context)


def add_note(error: BaseException, note: str) -> None:
    """Do what `error.add_note` does."""
    notes = getattr(error, "__notes__", None)
    if notes is None:
        BaseException.__setattr__(error, "__notes__", [note])
    else:
        notes.append(note)
