"""What an embedding generator returned, made into rows of numbers. Pure functions.

numpy is imported inside functions, here and in the whole room: who builds a router, but sends
nothing through it, does not load it.
"""

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from chatrouting.errors import EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Between these the square of a length is as exact in float32 as its parts are.
_SMALL: Final = 1e-12
_LARGE: Final = 1e12

#: Rows of which a product takes less time, by up to half, if they lie one after the other.
_SOME: Final = 64
#: Rows that a processor multiplies at once.
_ABREAST: Final = 8
#: Bytes that a processor fetches at once.
_CACHE_LINE: Final = 64

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
    return _read(value, count, copies=True)


def as_unit_vector(value: object) -> Vectors:
    """Copy the one vector that a generator returned for one text, and give it the length 1.

    The same as the functions above and below for one row, in a third of the time: it is what
    every request pays for.

    Returns:
        Shape (dimension,); zero if it has no direction.

    Raises:
        EmbeddingError: If it is no vector.
    """
    import numpy as np

    vector: Vectors = _read(value, 1, copies=False)[0]
    square = float(np.vdot(vector, vector))  # where the method warns of an overflow
    unit: Vectors
    if _SMALL < square < _LARGE:
        unit = vector * square**-0.5
    else:
        rows = vector[None].copy()
        make_unit_rows(rows)
        unit = rows[0]
    return unit


def _read(value: object, count: int, *, copies: bool) -> Vectors:
    """Return float32; unless it `copies`, that may be the generator's own array."""
    import numpy as np

    try:
        given: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError):  # rows of several lengths
        given = np.asarray(None)
    if given.dtype.kind not in "fiu" or given.ndim != 2 or not given.size:  # noqa: PLR2004
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
    if given.dtype == np.float32:
        return given.copy() if copies else given
    with np.errstate(over="ignore"):
        return given.astype(np.float32, order="C")


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


def arranged(rows: Vectors) -> Vectors:
    """Copy rows into memory so that a product with one query takes the least time.

    Some lie row by row, many column by column from the beginning of a cache line; for either the
    other way takes up to twice as long.

    Returns:
        The rows, followed by zeros where their number is no multiple of 8: the product takes up
        to 1.4 times as long if columns begin in the middle of what is multiplied at once.
    """
    import numpy as np

    count, dimension = rows.shape
    if count <= _SOME:
        return np.array(rows, order="C")
    height = count + -count % _ABREAST
    size = height * dimension * rows.itemsize
    memory = np.zeros(size + _CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    columns = memory[start : start + size].view(np.float32).reshape(dimension, height)
    columns[:, :count] = rows.T
    copied: Vectors = columns.T
    return copied
