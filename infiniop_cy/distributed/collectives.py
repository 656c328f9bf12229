"""The engines that carry integers between workers, and what the workers of a job owe each other: to leave together, or
to end.

All that is asked of an engine is a class of Workers with four members: `rank` and `size`, and two operations on a
contiguous int64 array, in place, over all workers: maximum(array) and sum(array). Either may return a request, whose
wait() ends it; until then the array is the engine's. Operations begin in the same order on all workers.
"""
import sys
import traceback
from importlib import import_module

from infiniop_cy import status
from infiniop_cy.distributed.agreement import agree_to_leave, is_agreed, is_last


class Workers:
    """The workers of a job, as a context: ``with mpi() as workers:``.

    Where one of them raises inside, the job ends with an error everywhere, instead of leaving the others to wait for
    it. At the end all have to be there: one that leaves early is an error on all that names it.

    For an engine of your own derive a class with `rank`, `size`, `maximum` and `sum`, and `abort` where the others do
    not notice by themselves that a worker has gone.

    Attributes
    ----------
    rank : int
        The number of this worker, from 0.
    size : int
        The number of workers.
    """

    rank, size = 0, 1
    _inside = False
    _announcing = None  # the GradientSum whose bucket is announced, but not summed yet
    _begun = ()         # all that have something under way

    def maximum(self, array):
        """The maximum over all workers, in place of each int64 array. Returns a request with ``wait()``, or None."""

    def sum(self, array):
        """The sum over all workers, likewise."""

    def abort(self):
        """End the others, which may be waiting for this worker, because it raised. The error is raised afterwards."""

    def sum_announced(self):
        """Begin to sum what was announced, before anything else begins: so the order of announcements, on which all
        workers agree, is the order of everything."""
        announcing, self._announcing = self._announcing, None
        if announcing is not None:
            announcing.sum_announced()

    def announce(self, sums):
        """Note that a GradientSum has announced a bucket."""
        self._announcing = sums
        if sums not in self._begun:
            self._begun = (*self._begun, sums)

    def end(self, sums):
        """Note that a GradientSum has nothing under way."""
        self._begun = tuple(other for other in self._begun if other is not sums)

    def __enter__(self):
        self._inside = True
        return self

    def __exit__(self, kind, error, trace):
        # Of an error that all have raised, some may have caught theirs and go on: these are not to wait for the others.
        agreed = is_agreed(error) and not is_last(error)
        try:
            if error is None or (isinstance(error, SystemExit) and not error.code) or agreed:
                self.sum_announced()
                for sums in self._begun:
                    sums.finish()
                agree_to_leave(self)
            elif not is_agreed(error):
                self.abort()
        except Exception as disagreement:
            if agreed or not is_agreed(disagreement):
                self.abort()
            raise
        finally:
            self._inside = False

    def _require_inside(self):
        if not self._inside:
            raise status.BadParam(f"{type(self).__name__}: used outside of its context, where an error of one worker "
                                  "would let the others wait forever; expected `with ... as workers:` around it")


class _Request:
    """What mpi4py returns, by the name that other engines have."""

    def __init__(self, request):
        self.wait = request.Wait


class _Mpi(Workers):
    def __init__(self, comm):
        from mpi4py import MPI
        self._comm = (MPI.COMM_WORLD if comm is None else comm).Dup()  # no message of anybody else's
        self._in_place, self._max, self._sum = MPI.IN_PLACE, MPI.MAX, MPI.SUM
        self.rank, self.size = self._comm.rank, self._comm.size

    def _all_reduce(self, array, operation):
        self._require_inside()
        return _Request(self._comm.Iallreduce(self._in_place, array, operation))

    def maximum(self, array):
        return self._all_reduce(array, self._max)

    def sum(self, array):
        return self._all_reduce(array, self._sum)

    def __enter__(self):
        if not self._comm:
            raise status.BadParam("mpi(): its `with` block has ended, and its communicator with it; expected mpi() "
                                  "anew, or one block around all")
        return super().__enter__()

    def abort(self):
        if self.size == 1:
            return
        # MPI's abort never returns, so this is the last chance to tell what happened.
        sys.stdout.flush()
        sys.stderr.write(f"rank {self.rank} of {self.size} ends the job:\n{traceback.format_exc()}")
        sys.stderr.flush()
        self._comm.Abort(1)

    def __exit__(self, kind, error, trace):
        super().__exit__(kind, error, trace)
        self._comm.Free()


class _Torch(Workers):
    def __init__(self, group):
        self._torch, self._group = import_module("torch"), group
        distributed = self._torch.distributed
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def _all_reduce(self, array, operation):
        self._require_inside()
        return self._torch.distributed.all_reduce(self._torch.from_numpy(array), operation, self._group, async_op=True)

    def maximum(self, array):
        return self._all_reduce(array, self._torch.distributed.ReduceOp.MAX)

    def sum(self, array):
        return self._all_reduce(array, self._torch.distributed.ReduceOp.SUM)

    def abort(self):
        self._torch.distributed.destroy_process_group(self._group)  # the others find the connection closed


def alone():
    """One process, which needs no engine: what `GradientSum` takes where it is given no workers.

    Returns
    -------
    Workers
        Of size 1.
    """
    return Workers()


def mpi(comm=None):
    """The processes of an MPI job, by mpi4py: ``mpiexec -n 4 python train.py``, or Slurm's srun.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        MPI.COMM_WORLD if None. A duplicate of it is used, so that all of its processes must call this.

    Returns
    -------
    Workers
        To be used in a ``with`` block. An error inside is printed and ends all processes, by MPI_Abort.

    Raises
    ------
    ImportError
        mpi4py is not installed: ``pip install 'infiniop_cy[mpi]'``.
    """
    return _Mpi(comm)


def torch(group=None):
    """The processes of a group of torch.distributed, whose backend takes CPU tensors: gloo.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        The default group if None; ``torch.distributed.init_process_group("gloo")`` makes it, beforehand.

    Returns
    -------
    Workers
        To be used in a ``with`` block. After an error inside, the group is destroyed, so that the others' next
        operation on it fails.

    Raises
    ------
    ImportError
        torch is not installed.
    """
    return _Torch(group)
