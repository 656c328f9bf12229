"""A convolution's plan in words."""


def _size(count):
    return f"{count / 1024:.0f} kB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MB"


def _way(name, facts, part):
    """(the way of one gradient, why)."""
    tile = " x ".join(map(str, part["tile"]))
    if facts["planes"]:
        return "planes", ("one input channel to a group, and grad_output at least as large as each phase of input: "
                          "a tap is one shift of a whole plane")
    if part["amx"]:
        return "AMX", _amx(name, part, tile)
    channels = facts["cin" if name == "grad_input" else "cout"]
    if part["across"]:
        how = "rows of pixels" if name == "grad_input" else "dot products"
        return how, (f"lanes hold pixels, since {channels} channels to a group would leave some of {facts['lanes']} "
                     f"lanes empty; tiles of {tile} pixels")
    cut = f"tiles of {tile} pixels, slivers of {part['columns']} columns, {part['task_columns']} a task"
    if part["shifted"]:
        return "blocks", f"taps are shifts within a packed block of {part['positions']} positions; {cut}"
    reason = f"more than {part['positions_limit']} positions" if part["positions"] > part["positions_limit"] \
        else "more positions than they read"
    return "im2col", f"taps are packed one by one: the block that they reach has {reason}; {cut}"


def _amx(name, part, tile):
    if name == "grad_input":
        rows, columns, task, few = "cin", "positions", "rows", "phases of the stride"
    else:
        rows, columns, task, few = "cout", "cin", "columns", "taps"
    why = (f"products of bfloat16 matrices, rows are {rows}, columns {columns}; taps are shifts in a packed block of "
           f"{part['positions']} positions; tiles of {tile} pixels, {part['task_columns']} {task} a task")
    return why + (f"; {few} are {task} too, since cin is small" if part["merged"] else "")


def conv_explanation(facts):
    """The lines of ConvBackwardDescriptor.explain()."""
    if facts is None:
        return "on a GPU: cuda/conv_backward.cu chooses kernels by arithmetic and channels (docs/gpu.md)"
    lines = [f"kernels of {facts['isa']}, {facts['lanes']} lanes",
             f"threads: {facts['threads']}, as many as have work",
             f"workspace: {_size(facts['workspace'])}; {_size(facts['shared'])} for weights or tables that all threads "
             f"share, {_size(facts['per_thread'])} a thread"]
    for name in ("grad_input", "grad_weight"):
        part = facts[name]
        way, why = _way(name, facts, part)
        more = []
        if not facts["planes"]:
            more.append(f"{part['tasks']} tasks")
            if part.get("phases", 1) > 1 and not part["merged"]:
                more.append(f"{part['phases']} phases of the stride")
            if part["pairs"]:
                more.append("pairs of bfloat16 by AVX512_BF16")
            if part.get("chain"):
                more.append("images are short: panels span samples, products are added one by one")
        lines.append(f"{name}: {way}; " + "; ".join([why, *more]))
    return "\n".join(lines)
