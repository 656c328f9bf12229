"""The worst case as a script: NumPy alone, the inputs by their bits, ready to paste into an issue."""
import numpy as np

from infiniop_cy.check import reference
from infiniop_cy.check.calls import CONVOLUTIONS
from infiniop_cy.testing.reference import FORMATS, ulp_of

HEADER = '''"""{title}, {dtype}: {evidence}

Found by `infiniop-cy check`; needs NumPy alone. Inputs, the result that {candidate} gave, and the exact one.
"""
import numpy as np


def values(bits, dtype):
    """Numbers from their bits; bfloat16 is the upper half of a float32."""
    if dtype == "bfloat16":
        return (np.array(bits, np.uint32) << 16).view(np.float32)
    return np.array(bits, {{"float16": np.uint16, "float32": np.uint32, "float64": np.uint64}}[dtype]).view(dtype)

'''
ELEMENTWISE = '''
dtype = "{dtype}"
g, x = values([{g}], dtype), values([{x}], dtype)  # {g_value!r}, {x_value!r}
got = values([{got}], dtype)  # of {candidate}
exact = {exact!r}  # {formula}; {digits}
ulp = {ulp!r}  # the distance between numbers of {dtype} there

print("x     ", x, "\\ng     ", g, "\\ngot   ", got, "\\nexact ", exact)
print("error ", abs(float(got[0]) - exact) / ulp, "ulp")
{call}'''
CONV = '''
# {evidence}
geometry = {geometry!r}
{names} = (values(bits, {dtype!r}).reshape(shape).astype(np.float64) for bits, shape in (
    {arrays},))
got = {{  # of {candidate}
    {got}}}


{definition}
'''
GRADIENTS = '''\
def gradients(g, x, w, stride, padding, dilation, groups):
    """The definition, in float64: one product per tap, output pixel, sample and pair of channels of one group."""
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    grad_padded, grad_weight = np.zeros_like(padded), np.zeros_like(w)
    inputs, outputs = x.shape[1] // groups, g.shape[1] // groups
    for tap in np.ndindex(w.shape[2:]):
        part = tuple(slice(k * d, k * d + (n - 1) * s + 1, s)
                     for k, d, n, s in zip(tap, dilation, g.shape[2:], stride))
        for group in range(groups):
            ci, co = slice(group * inputs, (group + 1) * inputs), slice(group * outputs, (group + 1) * outputs)
            tapped = w[(co, slice(None), *tap)]
            grad_padded[(slice(None), ci, *part)] += np.einsum("no...,oi->ni...", g[:, co], tapped)
            grad_weight[(co, slice(None), *tap)] += np.tensordot(
                g[:, co], padded[(slice(None), ci, *part)], ([0, *range(2, g.ndim)],) * 2)
    inside = tuple(slice(b, b + n) for (b, _), n in zip(padding, x.shape[2:]))
    return grad_padded[(slice(None), slice(None), *inside)], grad_weight, g.sum((0, *range(2, g.ndim)))


for name, exact in zip(("grad_input", "grad_weight", "grad_bias"), gradients(g, x, w, **geometry)):
    print(name, exact.shape, "\\n", exact, "\\n got\\n", got.get(name))'''
OUTPUT = '''\
def output(x, w, bias=None, *, stride, padding, dilation, groups):
    """The definition, in float64: one product per tap, output pixel, sample and pair of channels of one group."""
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[2:], w.shape[2:], stride, dilation)]
    y, inputs, outputs = np.zeros((len(x), len(w), *out)), w.shape[1], len(w) // groups
    for tap in np.ndindex(w.shape[2:]):
        part = tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(tap, dilation, out, stride))
        for group in range(groups):
            ci, co = slice(group * inputs, (group + 1) * inputs), slice(group * outputs, (group + 1) * outputs)
            y[:, co] += np.einsum("ni...,oi->no...", padded[(slice(None), ci, *part)], w[(co, slice(None), *tap)])
    return y if bias is None else y + bias.reshape(-1, *(1,) * len(out))


exact = output({names}, **geometry)
print(exact.shape, "\\n", exact, "\\n got\\n", got.get("output"))'''


def _worst(results, standard):
    """(result, verdict) to show: of what failed, the property that stands first in the table of properties."""
    for result in results:
        for verdict in result.verdicts:
            if verdict.failed and verdict in result.counts(standard) and _has_case(result, verdict):
                return result, verdict
    return None


def _has_case(result, verdict):
    return bool(verdict.details.get("worst") or verdict.details.get("examples") or (
        result.operator in CONVOLUTIONS and verdict.name in result.subject.repro))


def _call(spec, operator, parameters, needs_out):
    """Lines that ask the candidate again, where it is a function of NumPy arrays that can be imported."""
    if spec.kind != "python" or spec.arrays != "numpy":
        return ""
    module, name = spec.target.split(":")
    given = "".join(f", {key}={value!r}" for key, value in parameters.items())
    arguments = "g, x" if operator.endswith("_backward") else "x"
    given += ", out=np.empty(1, {dtype!r})" if needs_out else ""
    return (f"\nfrom {module} import {name.split('.')[0]}\n\nprint(\"again \", {name}("
            f"*(a.astype({{dtype!r}}) for a in ({arguments})){given}))\n")


def _convolution(result, verdict, facts):
    """The geometry, the arrays, what the candidate gave and the definition."""
    case, data, results = result.subject.repro[verdict.name]
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[data[0].itemsize]
    arrays = ",\n    ".join(f"({a.view(bits).ravel().tolist()}, {a.shape})" for a in data)
    if result.operator == "conv_backward":
        names, definition = "g, x, w", GRADIENTS
    else:
        names = ", ".join(("x", "w", "bias")[:len(data)])
        definition = OUTPUT.format(names=names)
    got = ",\n    ".join(f"{name!r}: values({a.view(bits).ravel().tolist()}, {result.dtype!r}).reshape({a.shape})"
                         for name, a in results.items() if a is not None)
    return CONV.format(geometry=case.keywords, names=names, arrays=arrays, got=got, definition=definition, **facts)


def script(spec, results, standard):
    """The text, or None where nothing that has a worst case failed."""
    found = _worst(results, standard)
    if found is None:
        return None
    result, verdict = found
    facts = {"title": result.title, "dtype": result.dtype, "candidate": _quotable(str(spec)),
             "evidence": _quotable(verdict.evidence)}
    if result.operator in CONVOLUTIONS:
        return HEADER.format(**facts) + _convolution(result, verdict, facts)
    taken = result.subject.session.facts
    needs_out = taken["out"] and not taken.get("returns")
    again = _call(spec, result.operator, result.parameters, needs_out).format(dtype=result.dtype)
    if result.dtype == "bfloat16":
        again = ""  # NumPy alone has no such arrays to give
    worst = (verdict.details.get("worst") or verdict.details["examples"])[0]
    case = result.subject.case
    digits = "by the formula's limit"
    x, g = np.float64(worst["x_value"]), np.float64(worst["g_value"])
    if reference.decidable(case, np.array([x]))[0] and np.isfinite(g):
        digits = f"30 digits: {_text(reference.exact(case, g, x))}"
    unit = float(2.0 ** FORMATS[result.dtype][1]) if not np.isfinite(worst["exact"]) else float(
        ulp_of(worst["exact"], result.dtype))
    return HEADER.format(**facts) + ELEMENTWISE.format(**(facts | {
        key: worst[key] for key in ("g", "x", "got", "g_value", "x_value")}), exact=_Literal(worst["exact"]),
        formula=case.operator.expression, digits=digits, ulp=unit, call=again)


def _quotable(text):
    """In one line of a docstring or a comment, whatever the command line or the candidate's words hold."""
    return "".join(c if c.isprintable() else " " for c in text).replace("\\", "\\\\").replace('"', "'")


class _Literal(float):
    """A float whose repr is code, for inf and NaN, too."""

    def __repr__(self):
        return float.__repr__(self) if np.isfinite(self) else f'float("{float(self)}")'


def _text(value):
    import mpmath
    return mpmath.nstr(value, 30)


def write(path, spec, results, standard):
    """Write the script; where nothing failed, or nothing that a single input shows, one that says so."""
    text = script(spec, results, standard)
    if text is None:
        failed = [f"{result.title} {result.dtype}, {verdict.name}: {verdict.evidence}" for result in results
                  for verdict in result.counts(standard) if verdict.failed]
        said = "\n".join(["infiniop-cy check found nothing that one input alone shows.", "", *failed] if failed else
                         ["infiniop-cy check found nothing to reproduce."])
        text = f"print({said!r})\n"
    with open(path, "w") as file:
        file.write(text)
