"""What kind of convolution a layer is."""
from math import prod


def kinds(case):
    """The kind, and what it is beside that: a layer counts in the row of each. The first colours its point."""
    stride, _, dilation, _ = case.geometry
    axes = [axis for axis, size in enumerate(case.kernel) if size > 1]
    strided = any(step > 1 for step in stride)
    found = [_main_kind(case, axes)]
    if any(dilation[axis] > 1 for axis in axes):
        found.append("dilated, any")
    if strided and max(case.size) > 1:
        found.append("strided, any")
    return found


def _main_kind(case, axes):
    each = case.cin // case.groups
    if prod(case.size) == 1:
        return "one-pixel image"
    if each == 1 and case.groups > 1:
        return f"depthwise {len(case.size)}-D"
    if case.groups > 1:
        return f"grouped, {_range(each)} channels each"
    if not axes:
        return "pointwise"
    if len(case.size) == 1:
        return "1-D"
    if len(case.size) == 3:
        return "3-D"
    if len(axes) == 1:
        return "1xN, Nx1"
    if max(case.kernel) > 4:
        return "large kernel"
    return "3x3" if case.kernel == (3, 3) else "other small kernel"


def _range(channels):
    """Powers of two: 9 is of 8-15."""
    low = 1 << channels.bit_length() - 1
    return f"{low}-{2 * low - 1}" if low < 64 else "64 or more"
