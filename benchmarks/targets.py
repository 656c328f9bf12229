"""What the elementwise operators are meant to reach: torch's median over ours, out= against out=, two threads."""

# formula: {dtype: {elements: ratio}}
_SMALL = {64: 8, 1024: 8}
_PIECEWISE = {
    "float32": {**_SMALL, 4096: 2.0, 10**6: 1.35, 32 * 10**6: 1.45},
    "bfloat16": {**_SMALL, 4096: 3.0, 10**6: 1.35, 32 * 10**6: 1.75},
    "float16": {**_SMALL, 4096: 2.8, 10**6: 1.3, 32 * 10**6: 1.55},
}
_FLOAT64 = {64: 7, 1024: 7, 4096: 1.5, 10**6: 1.2, 32 * 10**6: 1.3}
TARGETS = {
    "relu_backward": _PIECEWISE,
    "leaky_relu_backward": _PIECEWISE,
    "gelu_backward": {
        "float32": {**_SMALL, 4096: 8, 10**6: 1.8, 32 * 10**6: 1.6},
        "bfloat16": {**_SMALL, 4096: 8, 10**6: 2.0, 32 * 10**6: 2.1},
        "float16": {**_SMALL, 4096: 8, 10**6: 2.1, 32 * 10**6: 2.1},
    },
    "gelu_backward(approximate=tanh)": {
        "float32": {**_SMALL, 4096: 5, 10**6: 3.8, 32 * 10**6: 3.3},
        "bfloat16": {**_SMALL, 4096: 4, 10**6: 4.5, 32 * 10**6: 4.2},
        "float16": {**_SMALL, 4096: 4, 10**6: 4.5, 32 * 10**6: 4.1},
    },
    "sigmoid_backward": {
        "float32": {64: 7, 1024: 7, 4096: 2.5, 10**6: 2.2, 32 * 10**6: 2.7},
        "bfloat16": {64: 7, 1024: 7, 4096: 2.9, 10**6: 2.6, 32 * 10**6: 2.8},
        "float16": {64: 7, 1024: 7, 4096: 2.9, 10**6: 2.7, 32 * 10**6: 2.7},
    },
}
LAYOUT_TARGETS = {"x channels last": 3.0, "x, out channels last": 3.0, "g inner": 1.2, "g outer": 1.2, "g channel": 1.2}
ALLOCATING_TARGET = 1.4    # from ALLOCATING_FROM elements on
ALLOCATING_FROM = 32 * 10**6
TRIAD_TARGET = 0.95        # float32 from TRIAD_FROM elements on
TRIAD_FROM = 32 * 10**6
AVX2_TARGET = 1.1


def target(case, dtype, layout, size, threads, isa_forced):
    """The ratio to torch that this row should reach; None where nothing is promised."""
    if isa_forced:
        return AVX2_TARGET
    if threads < 2:
        return None
    if layout != "contiguous":
        return LAYOUT_TARGETS.get(layout)
    return (_FLOAT64 if dtype == "float64" else TARGETS.get(case, {}).get(dtype, {})).get(size)
