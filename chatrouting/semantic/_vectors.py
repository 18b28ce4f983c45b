"""What an embedding generator returned, made into rows of numbers. Pure functions.

numpy is imported inside functions, here and in the whole room: who builds a router, but sends
nothing through it, does not load it.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from chatrouting.errors import EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: float32; of shape (count, dimension), or (dimension,) for a single vector.
Vectors: TypeAlias = "NDArray[np.float32]"


def as_vectors(value: object, count: int) -> Vectors:
    """Copy what a generator returned.

    Args:
        value: Anything that `numpy.asarray` takes.
        count: How many vectors were asked for.

    Returns:
        Shape (count, dimension), dimension at least 1; numbers beyond float32 become infinite.

    Raises:
        EmbeddingError: If it is no such thing.
    """
    import numpy as np

    try:
        given: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError):  # rows of several lengths
        given = np.asarray(None)
    if given.dtype.kind not in "fiu" or given.ndim != 2 or 0 in given.shape:  # noqa: PLR2004
        found = type(value).__name__ if given.dtype.kind == "O" else f"shape {given.shape}"
        raise EmbeddingError(
            f"the embedding generator returned {found} for {count} texts; "
            "expected one vector for each text, all of one length."
        )
    if len(given) != count:
        raise EmbeddingError(
            f"the embedding generator returned {len(given)} vectors for {count} texts; "
            "expected one for each."
        )
    with np.errstate(over="ignore"):
        return given.astype(np.float32, order="C", copy=True)


def make_unit_rows(vectors: Vectors) -> None:
    """Give each row the length 1, in place. Rows without a direction become zero.

    Zeros, NaN and infinities have none: their cosine to anything is not a number.
    """
    import numpy as np

    # In float64, where no square of a float32 overflows or vanishes.
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    has_none = ~np.isfinite(lengths) | (lengths == 0)
    if has_none.any():
        vectors[has_none] = 0.0
        lengths[has_none] = 1.0
    np.divide(vectors, lengths[:, None], out=vectors, casting="same_kind")
