"""The process that a candidate lives in: it may crash, hang, print or exit there, and the command goes on."""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection

from infiniop_cy.check.arena import attach
from infiniop_cy.check.calls import CannotRun, Reply

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
        said = self._last_words()
        return f"{ended} ({said})" if said else ended

    def _last_words(self):
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 1000))
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:160] if lines else ""

    def call(self, call):
        """The Reply to a Call, yet without its results."""
        if self.process is None:
            self.start()
        kind, value = self._ask(call, self.timeout)
        return Reply("ok", shapes=value) if kind == "ok" else Reply(kind, value)

    def offers(self, operator, parameters):
        """None, or why the candidate does not have that operator with these parameters."""
        if self.process is None:
            self.start()
        return self._ask((operator, parameters), self.timeout)[1]

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

def _answer(candidate, memory, question):
    """What becomes of one question: a Call, or (operator, parameters) to ask whether that is offered."""
    if isinstance(question, tuple):
        return "offers", candidate.offers(*question)
    inputs = {name: placed.view(memory.data) for name, placed in question.inputs.items()}
    outputs = {name: placed.view(memory.data) for name, placed in question.outputs.items()}
    returned = candidate.call(question, inputs, outputs)
    shapes = {}
    for name, array in returned.items():
        shapes[name] = None if array is None else (array.shape, array.dtype.name)
        if array is not None and array is not outputs[name] and array.shape == outputs[name].shape:
            outputs[name][...] = array
    return "ok", shapes


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
        except BaseException as error:  # SystemExit and KeyboardInterrupt of the candidate are its answer, too
            answer = "raised", f"{type(error).__name__}: {error}".split("\n", 1)[0][:300]
        connection.send(answer)


if __name__ == "__main__":
    with contextlib.suppress(EOFError):
        serve(Connection(int(sys.argv[1])), attach(int(sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)  # atexit hooks and threads of the candidate are not waited for
