"""All 2**32 inputs of float32, in blocks, with g = 1; what is done is kept in a file, to go on from."""
import contextlib
import hashlib
import json
import os

import numpy as np

from infiniop_cy.check.calls import CannotRun
from infiniop_cy.check.inputs import block_of_patterns
from infiniop_cy.check.session import BLOCK
from infiniop_cy.check.tally import Tally

TOTAL = 2**32
KEEP_EVERY = 64  # blocks: a few seconds of work


def _key(subject):
    """What a state belongs to; another candidate, or the same after its file was edited, operator or standard starts
    anew."""
    facts = (repr(subject.session.spec), str(subject.case), repr(subject.settings.standard), subject.settings.ftz)
    key = hashlib.sha256(repr(facts).encode())
    for path in sorted(subject.session.facts.get("files", ())):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            key.update(hashlib.file_digest(file, "sha256").digest())
    return key.hexdigest()[:16]


def states_in(path):
    """{key: state} of that file, {} where there is none yet. Raises CannotRun for a file of something else."""
    try:
        with open(path) as file:
            states = json.load(file)
        if all({"next", "tally", "reasons"} <= state.keys() for state in states.values()):
            return states
    except FileNotFoundError:
        return {}
    except (AttributeError, OSError, ValueError):
        pass
    raise CannotRun(f"--resume {path}: this is no state of an exhaustive run")


def _keep(path, states):
    """All or nothing, since this is done to survive an interruption."""
    with open(f"{path}.new", "w") as file:
        json.dump(states, file)
    os.replace(f"{path}.new", path)


def every_float32(subject, tally, measure):
    """Count all inputs into the tally. Returns why blocks gave no results."""
    path, key = subject.settings.resume, _key(subject)
    states = states_in(path) if path else {}
    # What the rest of the sweep has counted is counted anew by every run, the blocks' by one of them.
    start, reasons, blocks = 0, [], Tally(subject.dtype)
    if key in states:
        start, reasons = states[key]["next"], list(states[key]["reasons"])
        blocks = Tally.from_dict(states[key]["tally"])
    ones = np.ones(BLOCK, np.float32)
    for n, at in enumerate(range(start, TOTAL, BLOCK), 1):
        reason = measure(subject, blocks, f"inputs 0x{at:08x} to 0x{at + BLOCK - 1:08x}", ones,
                         block_of_patterns(at, BLOCK))
        reasons += [reason] if reason else []
        if subject.settings.progress:
            subject.settings.progress(str(subject.case), at + BLOCK, TOTAL)
        if path and (n % KEEP_EVERY == 0 or at + BLOCK == TOTAL):
            states[key] = {"next": at + BLOCK, "tally": blocks.as_dict(), "reasons": reasons}
            _keep(path, states)
    tally.merge(blocks, subject.settings.standard)
    return reasons
