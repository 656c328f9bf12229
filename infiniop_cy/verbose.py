"""INFINIOP_VERBOSE=1: one log line per call, through logging; otherwise nothing, at no cost."""
import os

ENABLED = os.environ.get("INFINIOP_VERBOSE") == "1"

if ENABLED:
    import logging

    _log = logging.getLogger("infiniop_cy")
    _log.setLevel(logging.INFO)

    def _handled_by(logger):
        """The handlers that a record of this logger reaches."""
        above = _handled_by(logger.parent) if logger.propagate and logger.parent else []
        return [*logger.handlers, *above]

    # Asked for each line, since an application may set logging up at any time: it shall not have every line twice.
    _own = logging.StreamHandler()
    _own.addFilter(lambda record: _handled_by(_log) == [_own])
    _log.addHandler(_own)


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
