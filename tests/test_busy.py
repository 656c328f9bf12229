"""Other processes on every core: a short convolution on several threads is not much slower than on one."""
import os
import pathlib
import subprocess
import sys

import pytest

from infiniop_cy.config import config

SCRIPT = """
import os, sys
import numpy as np
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
sys.path.insert(0, sys.argv[1])
from busy import busy_processes, measure, our_call
call, _ = our_call(28, 48, 2)
with busy_processes(2):
    times = measure({n: lambda n=n: call(n) for n in (1, 2)}, 3)
print(*(np.median(times[n]) for n in (1, 2)))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no os.sched_setaffinity here")
@pytest.mark.skipif(not config()["openmp"]["runtime"], reason="built without OpenMP")
def test_beside_a_busy_process_on_each_core():
    """Twice as long is the aim, and 1.04 times was measured; a team that is met whenever it may be took 39 times."""
    benchmarks = pathlib.Path(__file__).parent.parent / "benchmarks"
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}  # a patient one hides the trouble
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(benchmarks)], env=environment, capture_output=True,
                         text=True, timeout=120, check=True)
    alone, team = map(float, ran.stdout.split())
    assert team < 4 * alone
