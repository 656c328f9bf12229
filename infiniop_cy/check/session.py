"""One call of a candidate, and what it left behind: results, inputs that changed, bytes that nobody may write to."""
import numpy as np

from infiniop_cy.check.arena import Arena
from infiniop_cy.check.calls import CONVOLUTIONS, ELEMENTWISE_OUTPUTS, Call, Reply
from infiniop_cy.check.worker import Worker
from infiniop_cy.testing.cases import arrange

ARENA_BYTES = 48 * 2**20
BLOCK = 2**20  # elements of the largest call
ZEROS = b"\0"


def _filled(array):
    """Which elements have all bits set, as those of outputs have before a call."""
    bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    return bits == np.iinfo(bits.dtype).max


def _unwritten(results, again):
    """(property, sentence) pairs on elements that are as before the call. again: calls for the results over zeros,
    since a NaN that a candidate computes may have these bits, too."""
    suspects = {name: _filled(result) for name, result in results.items() if result is not None}
    if not any(suspect.any() for suspect in suspects.values()):
        return
    others = again().results
    for name, suspect in suspects.items():
        other = others.get(name)
        count = 0 if other is None else int(np.count_nonzero(suspect & ~_filled(other)))
        if count:
            yield "output written", (f"{count} of {suspect.size} elements of {name} were not written, or added to what "
                                     "they held before")


class Session:
    """A candidate and the memory that calls go through. A context manager."""

    def __init__(self, spec, timeout):
        self.spec, self.timeout = spec, timeout
        self.arena = Arena(ARENA_BYTES)
        self.worker = Worker(spec, self.arena, timeout)
        self.threaded = {}  # number of threads: a Worker whose OpenMP was told so when it started; "fresh": a new one

    @property
    def facts(self):
        return self.worker.facts

    def _worker(self, which):
        """The process for a number of threads, or a "fresh" one."""
        if which is None or (which != "fresh" and self.facts["threads"]):
            return self.worker
        if which not in self.threaded:
            number = {} if which == "fresh" else {name: str(which) for name in (
                "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "INFINIOP_CY_NUM_THREADS")}
            self.threaded[which] = Worker(self.spec, self.arena, self.timeout, number)
        return self.threaded[which]

    def close_others(self):
        """End the processes that were started beside the first."""
        for worker in self.threaded.values():
            worker.stop()
        self.threaded.clear()

    def elementwise(self, case, g, x, shape=None, **how):
        """Reply whose results have grad_input, which for a forward function, that takes no g, is its output; of that
        shape, None: what the inputs broadcast to. how: see `run`."""
        given = dict(zip(case.operator.inputs, (g, x)[-case.count:]))
        shape = np.broadcast_shapes(*(array.shape for array in given.values())) if shape is None else shape
        return self.run(case.operator.name, case.parameters, given, {ELEMENTWISE_OUTPUTS[0]: (shape, x.dtype)}, **how)

    def conv(self, operator, case, arrays, only=None, **how):
        """Reply whose results have the outputs of `only`, None: all. arrays: in the order of the operator."""
        tensors = CONVOLUTIONS[operator]
        given = dict(zip(tensors.inputs, arrays))
        x, w = given["input"], given["weight"]
        shapes = dict(zip(tensors.outputs, (x.shape, w.shape, w.shape[:1]))) if "grad_output" in given else {
            "output": (len(x), *case.shapes[0][1:])}
        outputs = {name: (shapes[name], x.dtype) for name in only or tensors.outputs}
        return self.run(operator, case.keywords, given, outputs, **how)

    def run(self, operator, parameters, inputs, outputs, *, into=None, layout="contiguous", in_place=None,
            offset=None, odd=False, threads=None, guard=None, fresh=False, fill=b"\xff"):
        """Call the candidate once.

        inputs: name: array, whose strides are kept. outputs: name: (shape, dtype), in memory arranged by `layout`.
        into: whether it writes to them itself; None: if it can. in_place: the input that the output is; offset: so
        many elements further on. odd: one element past aligned addresses. threads: for this call. guard: "start" or
        "end": nothing before, or after, the tensors may be touched; "inputs": nor may they be written to. fresh: by a
        process of its own. fill: what outputs hold before, NaN in every dtype."""
        arena = self.arena
        arena.clear()
        edge = "start" if guard == "inputs" else guard
        placed = {name: arena.place(f"input:{name}", array, odd, edge) for name, array in inputs.items()}
        targets = {}
        for name, (shape, dtype) in outputs.items():
            if in_place is not None:
                first = placed[in_place]
                targets[name] = type(first)(first.offset + (offset or 0) * np.dtype(dtype).itemsize, shape,
                                            first.strides, first.dtype)
            else:
                empty = np.frombuffer(fill * (np.dtype(dtype).itemsize * int(np.prod(shape))), dtype).reshape(shape)
                targets[name] = arena.place(name, arrange(empty, layout), odd, edge)
        before = arena.snapshot()
        into = self.facts["out"] if into is None else into
        guards = () if guard is None else arena.input_pages() if guard == "inputs" else arena.walls()
        reply = self._worker("fresh" if fresh else threads).call(
            Call(operator, parameters, placed, targets, into, threads, guards))
        if reply.ok:
            for name, target in targets.items():
                shape = reply.shapes.get(name)
                wrong_shape = shape is not None and tuple(shape[0]) != target.shape
                reply.results[name] = None if shape is None or wrong_shape else arena.read(target)
        if reply.kind != "raised" or not into:
            reply.damage += arena.damage(before, list(targets.values()))
        if reply.ok and into and in_place is None and fill != ZEROS:
            reply.damage += _unwritten(reply.results, lambda: self.run(
                operator, parameters, inputs, outputs, into=into, layout=layout, odd=odd, threads=threads, fill=ZEROS))
        return reply

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_others()
        self.worker.stop()
        self.arena.__exit__()


__all__ = ["BLOCK", "Reply", "Session"]
