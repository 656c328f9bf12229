"""INFINIOP_VERBOSE=1: one log line per call, through logging; otherwise nothing, at no cost."""
import os

ENABLED = os.environ.get("INFINIOP_VERBOSE") == "1"

if ENABLED:
    import logging

    _log = logging.getLogger("infiniop_cy")
    _log.setLevel(logging.INFO)
    if not _log.handlers:
        _log.addHandler(logging.StreamHandler())


def log(operator, **facts):
    """`operator name=value ...`; arrays as dtype and shape. For callers to call where it is ENABLED: to name the facts
    takes time, too."""
    _log.info("%s %s", operator, " ".join(f"{name}={brief(value)}" for name, value in facts.items()))


def brief(value):
    """An array's dtype and shape; anything else as it is."""
    return f"{value.dtype}{tuple(value.shape)}" if hasattr(value, "shape") else value


def shown(value):
    """The same in a message: anything but an array as Python writes it."""
    return brief(value) if hasattr(value, "shape") else repr(value)
