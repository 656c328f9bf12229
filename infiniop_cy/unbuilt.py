"""Why the compiled module is missing, and what to do about it."""
import pathlib
import sys


def explanation():
    """A message for the ImportError of a package without its compiled module."""
    package = pathlib.Path(__file__).parent
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    others = sorted(path.name for path in (package / "core").glob("_core.*") if path.suffix in (".so", ".pyd"))
    built = f"; it is built for another Python ({', '.join(others)})" if others else ""
    if (package.parent / "setup.py").exists():
        return (f"infiniop_cy in {package.parent} is a checkout that is not built for {python}{built}. Build it there "
                f"(python -m pip install -e . or make test), or start Python in another folder to use one that is "
                f"installed")
    return f"infiniop_cy in {package.parent} has no compiled module for {python}{built}. Install it again"
