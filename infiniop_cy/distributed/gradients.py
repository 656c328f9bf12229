"""Sums of gradients over logical shards, piece by piece, with the next pieces under way."""
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from math import prod

import numpy as np

from infiniop_cy import dtypes, status
from infiniop_cy.core import _core
from infiniop_cy.distributed import special
from infiniop_cy.distributed.agreement import HEADER_WORDS, body, check_header, new_header, wait
from infiniop_cy.distributed.collectives import Workers, alone

_OP = "GradientSum"
_SUM_BITS = 62       # of a sum's magnitude: no sum of S magnitudes of at most 2^62 / S overflows, whatever its order
_PIECE = 1 << 19     # elements that are summed together: 4 MB, so that what an operation takes by itself is little
_UNDER_WAY = 16      # pieces: 64 MB at most, beside the shards themselves
_TENSOR_WORDS = 3    # of a header: the largest magnitude, whether there is inf or NaN, whether there is no -0 to keep
_MOST_TENSORS = (HEADER_WORDS - 2) // _TENSOR_WORDS  # of a header

# name: exponent of the smallest number
_LOWEST = {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}


def _unit_exponent(dtype, largest, guard_bits):
    """The exponent of the grid's unit for numbers up to the one whose bits are `largest`, so that each has at most
    2^(62 - guard_bits) units. No smaller than the smallest number of the dtype: then all of them are on the grid."""
    fraction = special.FRACTION_BITS[dtype.name]
    exponent = largest >> fraction
    above = (exponent + fraction if exponent else largest.bit_length()) + _LOWEST[dtype.name]  # every |v| < 2^above
    return max(_LOWEST[dtype.name], above - _SUM_BITS + guard_bits)


@dataclass(eq=False)
class _Tensor:
    """A gradient of one name."""

    name: str
    shape: tuple
    dtype: np.dtype
    shards: dict = field(default_factory=dict)     # by number, flat
    places: list = field(default_factory=list)     # (address, end, number) of each that has elements, in order
    unit: int = 0

    @property
    def size(self):
        return prod(self.shape)

    def take_place(self, flat, number):
        """Note where a shard lies. BadParam if that is, in part, where another one does."""
        start = flat.ctypes.data
        at = bisect_left(self.places, (start,))
        for other_start, other_end, other in self.places[max(at - 1, 0):at + 1]:
            if other_start < start + flat.nbytes and start < other_end:
                raise status.BadParam(f"{_OP}: gradient {self.name!r} of shard {number} is in the same memory as that "
                                      f"of shard {other}, expected an array of its own for each")
        self.places.insert(at, (start, start + flat.nbytes, number))

    def description(self):
        return [self.name, self.dtype.name, list(self.shape)]

    def survey(self):
        """What a header says of it: the maximum over all workers is what holds for all shards."""
        shards = list(self.shards.values())
        largest, nonfinite, minus_zero = zip(*map(_core.scan_magnitudes, shards)) if shards else ((0,), (), ())
        # An element that is -0 here is it in the sum if it is everywhere; without shards there is nothing against it.
        keeps_minus_zero = not shards or (all(minus_zero) and special.has_common_minus_zero(shards))
        return max(largest), any(nonfinite), not keeps_minus_zero


class _Piece:
    """Parts of tensors that are summed together, in one array, for one purpose: values, or counts of special ones."""

    def __init__(self, counts):
        self.counts, self.parts, self.size = counts, [], 0

    def fill(self, array, guard_bits):
        self.array, at = array, 0
        for tensor, begin, size in self.parts:
            into, shards = array[at:at + size], list(tensor.shards.values())
            if self.counts:
                special.count(shards, begin, into)
            else:
                _core.add_to_grid(shards, begin, into, tensor.unit, guard_bits)
            at += size

    def finish(self, shards):
        wait(self.request)
        at = 0
        for tensor, begin, size in self.parts:
            sums = self.array[at:at + size]
            if self.counts:
                special.settle(sums, tensor.result, begin, shards)
            else:
                _core.from_grid(sums, tensor.unit, tensor.result, begin)
            at += size


def _pieces(tensors, counts):
    """Cut tensors into pieces; small ones share one."""
    piece = _Piece(counts)
    for tensor in tensors:
        begin = 0
        while begin < tensor.size:
            size = min(tensor.size - begin, _PIECE - piece.size)
            piece.parts.append((tensor, begin, size))
            piece.size += size
            begin += size
            if piece.size == _PIECE:
                yield piece
                piece = _Piece(counts)
    if piece.size:
        yield piece


def _whole_number(value, name, least, most):
    try:
        number = -1 if isinstance(value, bool) else value.__index__()
    except (AttributeError, TypeError):
        number = -1
    if not least <= number <= most:
        raise status.BadParam(f"{_OP}: {name} is {value!r}, expected a whole number of {least} to {most}")
    return number


def cut(samples, shards):
    """The samples of each logical shard of a batch.

    Parameters
    ----------
    samples : int
        Of the whole batch, on all workers.
    shards : int
        The number of logical shards, 1 to 32767.

    Returns
    -------
    list of slice
        One for each shard. Their lengths differ by at most one; some are empty where there are fewer samples than
        shards, which is fine: the gradient of no samples is zeros.

    Raises
    ------
    BadParam
        Either is no such number.

    Examples
    --------
    >>> from infiniop_cy.distributed import cut
    >>> cut(5, 2)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    samples = _whole_number(samples, "samples", 0, 2**63 - 1)
    shards = _whole_number(shards, "shards", 1, special.MOST_SHARDS)
    return [slice(samples * s // shards, samples * (s + 1) // shards) for s in range(shards)]


class GradientSum:
    """The sum of gradients over the logical shards of a batch, with the same bits on any number of workers.

    Each worker adds the gradients of its own shards, by name, and all get the sums. Gradients are float16, bfloat16,
    float32 or float64. The sum of each element is exact but for the grid that holds it: with S shards and M the largest
    magnitude of the tensor in any of them, the error before the one rounding to the dtype is at most S^2 * M * 2^-61,
    and 0 for float16. inf and NaN give what IEEE 754's additions would; -0 is kept where all shards have it.

    Parameters
    ----------
    workers : Workers, optional
        What `mpi` or `torch` gives; one process if None.
    shards : int
        The number of logical shards, 1 to 32767, the same for every number of workers. Each worker has as many as any
        other, or one less; those beyond their number have none.

    Attributes
    ----------
    shards : range
        The numbers of this worker's shards.

    Raises
    ------
    BadParam
        shards is no such number, or workers is something else.

    See Also
    --------
    sum_gradient : The same for one tensor.
    """

    def __init__(self, workers=None, *, shards):
        self._count = _whole_number(shards, "shards", 1, special.MOST_SHARDS)
        self._workers = alone() if workers is None else workers
        if not isinstance(self._workers, Workers):
            raise status.BadParam(f"{_OP}: workers is a {type(workers).__name__}, expected mpi(), torch() or other "
                                  "Workers")
        rank, size = self._workers.rank, self._workers.size
        self.shards = range(self._count * rank // size, self._count * (rank + 1) // size)
        self._guard_bits = (self._count - 1).bit_length()
        build = _core.build_info()
        self._identity = f"sums {self._count} shards by instructions of {build['isa']}"
        self._spare = []  # arrays of pieces
        self._reset()

    def _reset(self):
        self._workers.end(self)
        self._tensors = {}        # all since the last result, by name
        self._open = []           # ... since the last start
        self._announced = None    # a bucket whose header is under way
        self._under_way = deque()  # pieces

    def declare(self, name, like):
        """Say what gradient will be added, for workers that may have no shard of their own.

        Parameters
        ----------
        name : str
            Of the gradient.
        like : array
            Of its shape and dtype, such as the weight that it belongs to.

        Raises
        ------
        BadTensorDtype, BadTensorShape
            The dtype is none that gradients have, or either is not that of earlier ones of this name.
        BadParam
            The name is no str, or was summed since the last `result` already.
        """
        self._tensor(name, _core.host_input(like, _OP, f"gradient {name!r}"))

    def add(self, name, shard, gradient):
        """Add the gradient of one shard. It is kept, not copied, unless it is not contiguous: leave it as it is until
        `result`.

        Parameters
        ----------
        name : str
            Of the gradient; the order of names is the same on all workers.
        shard : int
            One of `shards`, in any order.
        gradient : array
            float16, bfloat16, float32 or float64; all shards of one shape and dtype.

        Raises
        ------
        BadTensorDtype, BadTensorShape
            The dtype is none of these, or either is not that of other shards.
        BadParam
            The shard is another worker's, or was added before; the gradient is, in part, in the memory of
            another shard's of this name; or its name was summed since the last `result` already.
        """
        array = _core.host_input(gradient, _OP, f"gradient {name!r}")
        number = _whole_number(shard, "shard", 0, self._count - 1)
        if number not in self.shards:
            raise status.BadParam(f"{_OP}: shard {number} of gradient {name!r} is not one of rank "
                                  f"{self._workers.rank}, expected one of {self.shards}")
        tensor = self._tensor(name, array)
        if number in tensor.shards:
            raise status.BadParam(f"{_OP}: shard {number} of gradient {name!r} was added before")
        flat = np.ascontiguousarray(array).reshape(-1)
        if flat.size:
            tensor.take_place(flat, number)
        tensor.shards[number] = flat

    def _tensor(self, name, array):
        """The open tensor of a name, made for this array if there is none."""
        if not isinstance(name, str):
            raise status.BadParam(f"{_OP}: the name of a gradient is {name!r}, expected a str")
        if array.dtype.name not in dtypes.STORAGE:
            raise status.BadTensorDtype(f"{_OP}: gradient {name!r} has dtype {array.dtype}, expected float16, "
                                        "bfloat16, float32 or float64")
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = _Tensor(name, array.shape, array.dtype)
            self._open.append(tensor)
        if tensor not in self._open:
            raise status.BadParam(f"{_OP}: gradient {name!r} was started before, expected result() in between")
        if array.dtype != tensor.dtype:
            raise status.BadTensorDtype(f"{_OP}: gradient {name!r} has dtype {array.dtype}, expected {tensor.dtype} as "
                                        "before")
        if array.shape != tensor.shape:
            raise status.BadTensorShape(f"{_OP}: gradient {name!r} has shape {array.shape}, expected {tensor.shape} as "
                                        "before")
        return tensor

    def start(self):
        """Begin to sum what was added since the last start, while the next gradients are computed: a bucket. Small
        gradients share operations; the order of buckets is the same on all workers.

        Raises
        ------
        BadParam
            A shard of this worker is missing.
        BadParam, BadTensorDtype, BadTensorShape
            The workers do not sum the same: on all of them, here or in `result`.
        """
        for tensor in self._open:
            missing = [s for s in self.shards if s not in tensor.shards]
            if missing:
                raise status.BadParam(f"{_OP}: gradient {tensor.name!r} lacks shard {missing[0]}, expected all of "
                                      f"{self.shards} to be added before it is summed")
            tensor.shards = dict(sorted(tensor.shards.items()))
        if self._open:
            self._workers.sum_announced()  # of another sum, maybe, whose error is to leave this one as it is
        waiting, self._open = self._open, []
        while waiting:
            self._announce(waiting[:_MOST_TENSORS], len(waiting))
            del waiting[:_MOST_TENSORS]

    def _announce(self, bucket, waiting):
        """Begin to find out whether all workers have this bucket, and its largest magnitudes."""
        self._workers.sum_announced()
        description = [self._identity, *(tensor.description() for tensor in bucket), f"starts {waiting} gradients"]
        header = new_header(description)
        surveys = [word for tensor in bucket for word in tensor.survey()]
        body(header)[:len(surveys)] = surveys
        self._announced = bucket, description, header, self._workers.maximum(header)
        self._workers.announce(self)

    def sum_announced(self):
        """For the workers: begin to sum the bucket that was announced last."""
        (bucket, description, header, request), self._announced = self._announced, None
        wait(request)
        try:
            check_header(self._workers, header, description)
        except status.InfiniopError:
            self.finish()  # what is under way is so on all workers
            self._reset()
            raise
        special_ones = []
        for tensor, words in zip(bucket, body(header).reshape(-1)[:_TENSOR_WORDS * len(bucket)].reshape(-1, 3)):
            largest, nonfinite, no_minus_zero = (int(word) for word in words)
            tensor.unit = _unit_exponent(tensor.dtype, largest, self._guard_bits)
            tensor.result = np.empty(tensor.size, tensor.dtype)
            if nonfinite or not no_minus_zero:
                special_ones.append(tensor)
        for piece in (*_pieces(bucket, counts=False), *_pieces(special_ones, counts=True)):
            self.finish(_UNDER_WAY - 1)
            array = self._spare.pop() if self._spare else np.empty(_PIECE, np.int64)
            piece.fill(array[:piece.size], self._guard_bits)
            piece.request = self._workers.sum(piece.array)
            self._under_way.append(piece)
        for tensor in bucket:
            tensor.shards = {}

    def finish(self, left=0):
        """For the workers: end the oldest pieces under way, but for so many."""
        while len(self._under_way) > left:
            piece = self._under_way.popleft()
            piece.finish(self._count)
            self._spare.append(piece.array.base)

    def result(self):
        """The sums of all gradients added since the last result.

        Returns
        -------
        dict of str to ndarray
            In the order in which they were added first; new arrays, the same on all workers.

        Raises
        ------
        BadParam, BadTensorDtype, BadTensorShape
            As for `start`.
        """
        self.start()
        self._workers.sum_announced()
        self.finish()
        results = {tensor.name: tensor.result.reshape(tensor.shape) for tensor in self._tensors.values()}
        self._reset()
        return results


def sum_gradient(gradients, shards, workers=None, *, like=None):
    """The sum of one gradient over logical shards, with the same bits on any number of workers.

    Parameters
    ----------
    gradients : sequence of array
        Those of this worker's shards, in their order: shards ``shards * rank // size`` to ``shards * (rank + 1) //
        size - 1``.
    shards : int
        The number of logical shards, 1 to 32767.
    workers : Workers, optional
        As for `GradientSum`.
    like : array, optional
        Of the gradient's shape and dtype, where there are more workers than shards.

    Returns
    -------
    ndarray
        The same on all workers.

    Raises
    ------
    BadParam, BadTensorDtype, BadTensorShape
        As for `GradientSum`, or for another number of gradients than this worker has shards.

    Examples
    --------
    >>> import numpy as np
    >>> from infiniop_cy.distributed import sum_gradient
    >>> sum_gradient([np.float32([1e8, 1]), np.float32([1, 2]), np.float32([-1e8, 3])], shards=3)
    array([1., 6.], dtype=float32)
    """
    sums = GradientSum(workers, shards=shards)
    if len(gradients) != len(sums.shards):
        raise status.BadParam(f"sum_gradient: gradients has {len(gradients)} entries, expected one for each of this "
                              f"worker's shards, {sums.shards}")
    if like is not None:
        sums.declare("gradient", like)
    for shard, gradient in zip(sums.shards, gradients):
        sums.add("gradient", shard, gradient)
    if len(gradients) == 0 and like is None:
        raise status.BadParam("sum_gradient: gradients is empty, expected like= where a worker has no shard")
    return sums.result()["gradient"]
