"""The process that a candidate lives in: it may crash, hang, print or exit there, and the command goes on."""
import contextlib
import ctypes
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection

from infiniop_cy.check.arena import attach
from infiniop_cy.check.calls import CannotRun, Died, Reply
from infiniop_cy.check.program import last_line

MOST_SAID = 2**20  # bytes of what a candidate prints, of which its last line before a crash is read
START_SECONDS = 120  # importing torch or jax from a cold disk


class Worker:
    """Starts the process of a candidate, passes calls on, and starts it again after it died.

    environment: variables to set for it; OMP_NUM_THREADS is read when a process starts."""

    def __init__(self, spec, arena, timeout, environment=None):
        self.spec, self.arena, self.timeout = spec, arena, timeout
        self.environment = environment or {}
        self.process = None
        self.start()

    def start(self):
        """Raises CannotRun where the candidate cannot be loaded."""
        ours, theirs = socket.socketpair()
        self.log = tempfile.TemporaryFile()  # a candidate that prints fills no terminal
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "infiniop_cy.check.worker", str(theirs.fileno()), str(self.arena.file)],
                pass_fds=(theirs.fileno(), self.arena.file), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                env=os.environ | self.environment, start_new_session=True)
        self.connection = Connection(ours.detach())
        kind, value = self._ask(self.spec, START_SECONDS)
        if kind != "ready":
            self.stop()
            raise CannotRun(value if kind == "failed" else f"{self.spec}: its process did not start: {value}")
        self.facts = value

    def _ask(self, question, seconds):
        """(kind, value) of the answer; a process that gave none is stopped."""
        try:
            self.connection.send(question)
            if self.connection.poll(seconds):
                return self.connection.recv()
            answer = "timeout", f"no answer within {seconds:g} s"
        except (EOFError, OSError):
            answer = "crash", self._ending()
        self.stop()
        return answer

    def _ending(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.poll()
        ended = f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        said = last_line(self.log)
        return f"{ended} ({said})" if said else ended

    def call(self, call):
        """The Reply to a Call, yet without its results."""
        if self.process is None:
            self.start()
        kind, value = self._ask(call, self.timeout)
        if self.process is not None and os.fstat(self.log.fileno()).st_size > MOST_SAID:
            os.ftruncate(self.log.fileno(), 0)
            os.lseek(self.log.fileno(), 0, os.SEEK_SET)  # of the process, too, which writes by the same descriptor
        return Reply("ok", shapes=value[0], damage=value[1]) if kind == "ok" else Reply(kind, value)

    def offers(self, operator, parameters):
        """None, or why the candidate does not have that operator with these parameters."""
        if self.process is None:
            self.start()
        return self._ask((operator, parameters), self.timeout)[1]

    def allocated(self):
        """Bytes that the process has from malloc and has not freed, or None where that is not known."""
        return self._ask("allocated", self.timeout)[1] if self.process is not None else None

    def stop(self):
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # what it started goes with it
        self.process.wait()
        self.connection.close()
        self.log.close()
        self.process = None


# ---- in the process of the candidate

@contextlib.contextmanager
def _guarded(memory, guards):
    """Pages of the arena that end this process when it touches them, or, where they may be read, writes to them."""
    def protect(first, size, access):
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + first), ctypes.c_size_t(size), access):
            raise OSError("memory cannot be protected here")
    for first, size, readable in guards:
        protect(first, size, mmap.PROT_READ if readable else 0)
    try:
        yield
    finally:
        for first, size, _ in guards:
            protect(first, size, mmap.PROT_READ | mmap.PROT_WRITE)


class _Mallinfo(ctypes.Structure):
    """glibc's mallinfo2, of the main thread's heap and of what lies in pages of its own."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"))


def _allocated():
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return None
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


def _float_settings(one=1.0, least=5e-324):
    """What this process makes of subnormal numbers and of results between two numbers."""
    return least * 2.0 > 0, *(one + step == one for step in (2.0 ** -53, -2.0 ** -54)), -one - 2.0 ** -53 == -one


def _answer(candidate, memory, question):
    """What becomes of one question: a Call, (operator, parameters) to ask whether that is offered, or "allocated"."""
    if question == "allocated":
        return "bytes", _allocated()
    if isinstance(question, tuple):
        return "offers", candidate.offers(*question)
    inputs = {name: placed.view(memory.data) for name, placed in question.inputs.items()}
    outputs = {name: placed.view(memory.data) for name, placed in question.outputs.items()}
    before = _float_settings()
    with _guarded(memory, question.guards):
        returned = candidate.call(question, inputs, outputs)
    damage = [*getattr(candidate, "damage", ())]
    if _float_settings() != before:
        damage.append(("settings kept", "the process rounds otherwise, or flushes subnormal numbers, after the call"))
    shapes = {}
    for name, array in returned.items():
        shapes[name] = None if array is None else (array.shape, array.dtype.name)
        if array is not None and array is not outputs[name] and array.shape == outputs[name].shape:
            outputs[name][...] = array
    return "ok", (shapes, damage)


def serve(connection, memory):
    """Load the candidate that the first message names, then answer until the other side is gone."""
    import numpy as np

    from infiniop_cy.check.candidates import load
    try:
        candidate = load(connection.recv())
    except BaseException as error:  # whatever the candidate's module does is the answer
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        connection.send(("failed", f"{kind}{error}".splitlines()[0]))
        return
    connection.send(("ready", candidate.facts()))
    while True:
        question = connection.recv()
        try:
            with np.errstate(all="ignore"):
                answer = _answer(candidate, memory, question)
        except Died as error:
            answer = "crash", str(error)
        except (SystemExit, KeyboardInterrupt) as error:  # a program of the user's would end here
            answer = "crash", f"ended by {type(error).__name__}: {error}"
        except BaseException as error:  # whatever else the candidate raises is a refusal
            answer = "raised", f"{type(error).__name__}: {error}".split("\n", 1)[0][:300]
        connection.send(answer)


if __name__ == "__main__":
    with contextlib.suppress(EOFError):
        serve(Connection(int(sys.argv[1])), attach(int(sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)  # atexit hooks and threads of the candidate are not waited for
