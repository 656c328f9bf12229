"""The C API: headers in include/, libinfiniop.so and libinfinirt.so in lib/; this folder serves as INFINI_ROOT."""
import pathlib

from infiniop_cy.status import NotImplementedOperator

ROOT = pathlib.Path(__file__).parent


def get_include():
    """The folder of the C headers, for compilers' -I."""
    return str(ROOT / "include")


def infini_root():
    """A folder usable as INFINI_ROOT: lib/libinfiniop.so, lib/libinfinirt.so, include/. Raises NotImplementedOperator
    where this platform's build has no C libraries."""
    if not (ROOT / "lib/libinfiniop.so").exists():
        raise NotImplementedOperator("infini_root: this build has no C libraries, which need Linux")
    return str(ROOT)
