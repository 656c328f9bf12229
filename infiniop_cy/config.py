"""What this installation is: show_config() and `python -m infiniop_cy info`."""
import os


def _version(package):
    """The version of an installed package; None where it is not, or is imported from a tree without metadata."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def config():
    """The facts as a dict that JSON can hold."""
    import platform

    import numpy

    from infiniop_cy import devices
    from infiniop_cy.core import _core

    build = _core.build_info()
    count, why = _core.thread_settings()
    bfloat16 = _version("ml_dtypes")
    return {
        "version": _version("infiniop_cy"),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "compiler": build["compiler"],
        "openmp": {"version": build["openmp"] or None, "runtime": _openmp_runtime()},
        "isa": {"compiled": build["isas"], "chosen": build["isa"],
                "why": "INFINIOP_CY_ISA" if build["isa_forced"] else "best that this CPU supports"},
        "threads": {"count": count, "why": why, "cores": os.cpu_count()},
        "bfloat16": bfloat16 and f"ml_dtypes {bfloat16}",
        "devices": devices.available_devices(),
        "cuda": {"usable": devices.cuda_problem() is None, "reason": devices.cuda_problem()},
    }


def _openmp_runtime():
    """File name of the OpenMP library in this process; None where it cannot be told."""
    try:
        with open("/proc/self/maps") as maps:
            found = {os.path.basename(line.split()[-1]) for line in maps if "omp" in line.split()[-1].lower()}
    except OSError:
        return None
    return ", ".join(sorted(name for name in found if name.startswith(("libgomp", "libomp", "libiomp")))) or None


def config_text():
    """The same, a line a fact."""
    c = config()
    openmp = f"{c['openmp']['version']} ({c['openmp']['runtime'] or 'runtime unknown'})" if c["openmp"]["version"] \
        else "not built in"
    cuda = "usable" if c["cuda"]["usable"] else f"not usable: {c['cuda']['reason']}"
    lines = (
        ("infiniop_cy", c["version"] or "unknown: not installed, and imported from where it lies"),
        ("Python, NumPy", f"{c['python']}, {c['numpy']}"),
        ("compiler", c["compiler"]),
        ("OpenMP", openmp),
        ("instruction set", f"{c['isa']['chosen']} of {', '.join(c['isa']['compiled'])} ({c['isa']['why']})"),
        ("threads", f"{c['threads']['count']} of {c['threads']['cores']} cores ({c['threads']['why']})"),
        ("bfloat16", c["bfloat16"] or "not usable: ml_dtypes is not installed"),
        ("CUDA", cuda),
    )
    return "\n".join(f"{name:<16} {value}" for name, value in lines)


def show_config():
    """Print version, compiler, OpenMP, instruction sets, threads and why, bfloat16 provider, GPU or why none."""
    import sys
    sys.stdout.write(config_text() + "\n")
