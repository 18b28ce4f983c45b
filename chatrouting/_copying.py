"""What `copy` and `pickle` make of things that are more than their values.

Messages, options and answers are values: they are copied and pickled as usual. A client stands for
connections, and for what it has learned; a stream or a context belongs to one running request.
"""

from typing import NoReturn, Self

from typing_extensions import override


class SharedWhenCopied:
    """Base of clients: a copy is the client itself, so that whatever holds one can be copied."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds connections and running state, which cannot be pickled. "
            "Pickle what it was made from, and build it again."
        )


class NeverCopied:
    """Base of what belongs to one running request."""

    __slots__ = ()

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to one running request and can neither be copied nor "
            "pickled. Copy its messages, its options or its response."
        )
