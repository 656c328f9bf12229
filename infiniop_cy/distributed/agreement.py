"""What workers do together, they have to agree on: otherwise an engine would add apples to pears, or wait forever.

The first operation of anything is a maximum over a header of fixed size, which begins with a hash of what a worker is
about to do and with its negative. Where their maxima do not cancel, some worker does something else; then all send
their descriptions to all, and raise the same error.
"""
import hashlib
import json

import numpy as np

from infiniop_cy import status

HEADER_WORDS = 256
_HASH_WORDS = 2
LEAVING = "leaves its `with` block"


def new_header(description):
    """An int64 array of HEADER_WORDS for the engine's maximum. description: what json takes."""
    header = np.zeros(HEADER_WORDS, np.int64)
    digest = hashlib.blake2b(_encoded(description), digest_size=7).digest()
    header[0] = int.from_bytes(digest)
    header[1] = -header[0]
    return header


def body(header):
    """The words of a header that are free."""
    return header[_HASH_WORDS:]


def wait(request):
    """End an operation of an engine."""
    if request is not None:
        request.wait()


def check_header(workers, header, description):
    """Raise, on all workers, where the maximum over their headers says that they do not do the same."""
    if header[0] != -header[1]:
        descriptions = _exchange(workers, description)
        error = _difference(descriptions)
        error.agreed, error.last = True, [LEAVING] in descriptions
        raise error


def is_agreed(error):
    """Whether all workers have raised this error, each for itself."""
    return getattr(error, "agreed", False)


def is_last(error):
    """Whether some worker is leaving with it: nothing can be agreed on any more."""
    return getattr(error, "last", False)


def agree_to_leave(workers):
    """Return when all workers are here; raise, on all, where some are elsewhere."""
    if workers.size > 1:
        header = new_header([LEAVING])
        wait(workers.maximum(header))
        check_header(workers, header, [LEAVING])


def _encoded(description):
    return json.dumps(description).encode()


def _exchange(workers, description):
    """The descriptions of all workers, by rank: a sum over arrays in which each has filled in its own row."""
    text = _encoded(description)
    length = np.array([len(text)])
    wait(workers.maximum(length))
    rows = np.zeros((workers.size, -(-int(length[0]) // 8) * 8), np.uint8)
    rows[workers.rank, :len(text)] = np.frombuffer(text, np.uint8)
    wait(workers.sum(rows.reshape(-1).view(np.int64)))
    return [json.loads(row.tobytes().rstrip(b"\0")) for row in rows]


def _difference(descriptions):
    """The error for the first item in which a worker's description is not that of rank 0."""
    first = descriptions[0]
    rank = next(r for r, other in enumerate(descriptions) if other != first)
    other = descriptions[rank]
    at = next((i for i, (a, b) in enumerate(zip(first, other)) if a != b), min(len(first), len(other)))
    mine, yours = (items[at] if at < len(items) else None for items in (first, other))
    error = status.BadParam
    if isinstance(mine, list) and isinstance(yours, list) and mine[0] == yours[0]:  # gradients of one name
        error = status.BadTensorDtype if mine[1] != yours[1] else status.BadTensorShape
    return error(f"GradientSum: rank 0 {_said(mine)}, but rank {rank} {_said(yours)}; expected the same on all "
                 f"{len(descriptions)} workers, in the same order")


def _said(item):
    if item is None:
        return "has no further gradient"
    if isinstance(item, str):
        return item
    name, dtype, shape = item
    return f"has a gradient {name!r} of dtype {dtype} and shape {tuple(shape)}"
