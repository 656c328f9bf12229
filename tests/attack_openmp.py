"""Other OpenMP libraries in one process with this one, loaded in every order: the same bits.

    .venv/bin/python tests/attack_openmp.py libgomp.so.1 /usr/lib/llvm-14/lib/libomp.so.5 .../libiomp5.so

Each order runs in a process of its own, once with libraries that see only themselves and once with their names open to
all, so that what was linked to one library is called in another. Of those libraries libgomp is used, too, and the first
of the others, before or after; the second of LLVM's kin would end the process by itself (their error 15)."""
import ctypes
import itertools
import os
import subprocess
import sys

OURS = "infiniop_cy"


def digest(num_threads):
    """The bits of one convolution's gradients, an output and a long elementwise call."""
    import hashlib

    import numpy as np

    import infiniop_cy as iop
    rng = np.random.default_rng(0)
    g, x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 40, 30, 30), (2, 30, 30, 30), (40, 30, 3, 3)))
    big = rng.standard_normal(2**18).astype(np.float32)
    results = (*iop.conv_backward(g, x, w, padding=1, num_threads=num_threads),
               iop.conv(x, w, padding=1, num_threads=num_threads), iop.gelu_backward(big, big, num_threads=num_threads))
    return hashlib.sha256(b"".join(a.tobytes() for a in results)).hexdigest()


def child(mode, names):
    """Load and use them in this order; print the digest that all calls have."""
    used, got = False, []
    for name in names:
        if name == OURS:
            got += [digest(3), digest(2)]
            continue
        library = ctypes.CDLL(name, getattr(ctypes, f"RTLD_{mode}"))
        gnu = "gomp" in name
        if gnu or not used:
            assert library.omp_get_max_threads() > 0
            used |= not gnu
    got += [digest(3), digest(1)]
    assert len(set(got)) == 1, f"bits differ: {got}"
    print(got[0])


def main(libraries):
    for name in libraries:
        ctypes.CDLL(name)  # a wrong path is said at once
    expected, count = digest(1), 0
    for order in itertools.permutations((*libraries, OURS)):
        for mode in ("LOCAL", "GLOBAL"):
            ran = subprocess.run([sys.executable, __file__, f"--{mode}", *order], capture_output=True, text=True,
                                 env={**os.environ, "OMP_WAIT_POLICY": "passive"}, timeout=300, check=False)
            assert ran.stdout.strip() == expected, f"{mode} {order}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
            count += 1
    print(f"{count} orders of {', '.join(map(os.path.basename, libraries))} and this library: the same bits")


if __name__ == "__main__":
    if sys.argv[1].startswith("--"):
        child(sys.argv[1][2:], sys.argv[2:])
    else:
        main(sys.argv[1:])
