"""A convolution's plan in words."""


def _size(count):
    return f"{count / 1024:.0f} kB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MB"


def _step(step):
    gradients, name = " and ".join(step["gradients"]), step["algorithm"].rpartition(":")[2]
    phases = f"; {step['phases']} phases of the stride" if step["phases"] > 1 else ""
    text = f"{gradients}: {name}; {step['how']}; {step['tasks']} tasks{phases}"
    if step["otherwise"]:
        text += (f"; samples (or weights) with numbers too small or large for that, inf or NaN, which are looked for "
                 f"{'first' if step['looks_first'] else 'on the way'}: {step['otherwise'].rpartition(':')[2]}")
    return text


def conv_explanation(facts):
    """The lines of a convolution descriptor's explain(): what was chosen, and why nothing before it in the list was."""
    if facts is None:
        return "on a GPU: cuda/conv.cu chooses kernels by arithmetic and channels (docs/gpu.md)"
    lines = [f"kernels of {facts['isa']}, {facts['lanes']} lanes",
             f"threads: {facts['threads']}, as many as have work",
             f"workspace: {_size(facts['workspace'])}; {_size(facts['shared'])} for weights or tables that all threads "
             f"share, {_size(facts['per_thread'])} a thread",
             *map(_step, facts["steps"])]
    if facts["together"]:
        lines.append("both gradients: tile by tile, so that grad_output comes from memory once")
    for gradient, refused in facts["refused"].items():
        lines += [f"  {gradient} not by {name.rpartition(':')[2]}: {why}" for name, why in refused]
    return "\n".join(lines)
