"""One call of a candidate, and what it left behind: results, inputs that changed, bytes that nobody may write to."""
import numpy as np

from infiniop_cy.check.arena import Arena
from infiniop_cy.check.calls import CONV_INPUTS, CONV_OUTPUTS, ELEMENTWISE_OUTPUTS, Call, Reply
from infiniop_cy.check.worker import Worker
from infiniop_cy.testing.cases import arrange

ARENA_BYTES = 48 * 2**20
BLOCK = 2**20  # elements of the largest call


class Session:
    """A candidate and the memory that calls go through. A context manager."""

    def __init__(self, spec, timeout):
        self.spec, self.timeout = spec, timeout
        self.arena = Arena(ARENA_BYTES)
        self.worker = Worker(spec, self.arena, timeout)
        self.threaded = {}  # number of threads: a Worker whose OpenMP was told so when it started

    @property
    def facts(self):
        return self.worker.facts

    def _worker(self, threads):
        if threads is None or self.facts["threads"]:
            return self.worker
        if threads not in self.threaded:
            number = str(threads)
            self.threaded[threads] = Worker(self.spec, self.arena, self.timeout, {
                name: number for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                          "INFINIOP_CY_NUM_THREADS")})
        return self.threaded[threads]

    def close_threads(self):
        """End the processes that were started for numbers of threads."""
        for worker in self.threaded.values():
            worker.stop()
        self.threaded.clear()

    def elementwise(self, case, g, x, **how):
        """Reply whose results have grad_input, which for a forward function, that takes no g, is its output. how: see
        `run`."""
        given = dict(zip(case.operator.inputs, (g, x)[-case.count:]))
        shape = np.broadcast_shapes(*(array.shape for array in given.values()))
        return self.run(case.operator.name, case.parameters, given, {ELEMENTWISE_OUTPUTS[0]: (shape, x.dtype)}, **how)

    def conv(self, case, arrays, **how):
        g, x, w = arrays
        outputs = dict(zip(CONV_OUTPUTS, ((x.shape, x.dtype), (w.shape, w.dtype), ((w.shape[0],), w.dtype))))
        return self.run("conv_backward", case.keywords, dict(zip(CONV_INPUTS, (g, x, w))), outputs, **how)

    def run(self, operator, parameters, inputs, outputs, *, into=None, layout="contiguous", in_place=None,
            offset=None, odd=False, threads=None):
        """Call the candidate once.

        inputs: name: array, whose strides are kept. outputs: name: (shape, dtype), in memory arranged by `layout`.
        into: whether it writes to them itself; None: if it can. in_place: the input that the output is; offset: so
        many elements further on. odd: one element past aligned addresses. threads: for this call."""
        arena = self.arena
        arena.clear()
        placed = {name: arena.place(f"input:{name}", array, odd) for name, array in inputs.items()}
        targets = {}
        for name, (shape, dtype) in outputs.items():
            if in_place is not None:
                first = placed[in_place]
                targets[name] = type(first)(first.offset + (offset or 0) * np.dtype(dtype).itemsize, shape,
                                            first.strides, first.dtype)
            else:
                # NaN in every dtype: what is not written shows
                empty = np.frombuffer(b"\xff" * (np.dtype(dtype).itemsize * int(np.prod(shape))), dtype).reshape(shape)
                targets[name] = arena.place(name, arrange(empty, layout), odd)
        before = arena.snapshot()
        into = self.facts["out"] if into is None else into
        reply = self._worker(threads).call(Call(operator, parameters, placed, targets, into, threads))
        if reply.ok:
            for name, target in targets.items():
                shape = reply.shapes.get(name)
                wrong_shape = shape is not None and tuple(shape[0]) != target.shape
                reply.results[name] = None if shape is None or wrong_shape else arena.read(target)
        if reply.kind != "raised" or not into:
            reply.damage = arena.damage(before, list(targets.values()))
        return reply

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_threads()
        self.worker.stop()
        self.arena.__exit__()


__all__ = ["BLOCK", "Reply", "Session"]
