"""The C functions of each operator of operators.py, from the templates beside this file. Run by setup.py."""
import pathlib

HERE = pathlib.Path(__file__).parent


def _template(name):
    return (HERE / name).read_text()


def _fields(position, operator):
    """What the templates leave open."""
    numbers = [p for p in operator.parameters if not p.choices]
    choices = [p for p in operator.parameters if p.choices]
    kinds = {p.name: "bool" if isinstance(p.default, bool) else "float" for p in numbers}
    out, *inputs = operator.tensors
    fields = {
        "name": operator.name, "guard": operator.name.upper(), "Name": operator.class_name,
        "expression": operator.expression, "with_": "g = grad_output and " if operator.backward else "",
        "position": position, "promotes": str(operator.promotes).lower(), "count": len(numbers),
        "formula": choices[0].formula(choices[0].default, operator.backward) if choices else operator.name,
        "out": out, "in_place": " or ".join(inputs), "tensors": ", ".join(operator.tensors),
        "descriptors": ", ".join(f"infiniopTensorDescriptor_t {name}" for name in operator.tensors),
        "data": ", ".join([f"void *{out}", *(f"const void *{name}" for name in inputs)]),
        "calculated": ", ".join([*operator.tensors, "nullptr"][:3]),
        "arguments": "".join(f", {kinds[p.name]} {p.name}" for p in numbers),
        "values": "".join(f"double({p.name}), " for p in numbers),
        "dtypes": f"; inputs may differ and promote, {out} may be any" if operator.promotes else ", all the same",
        "documentation": "".join(f"   {p.name}: {' '.join(p.doc.split())}\n" for p in numbers),
        "refusal": f", or {operator.constraint.split()[0]} out of range" if operator.constraint else "",
    }
    if choices:
        fields["choice"] = choices[0].name
        fields["options"] = ", ".join(f'{i} for "{value}"' for i, value in enumerate(choices[0].choices))
        fields["formulas"] = ", ".join(f'"{formula}"' for formula in operator.formulas)
    return fields


def _form(operator, formula):
    """Which form of the operator a formula is, in words; nothing where there is but one."""
    for parameter in operator.parameters:
        for value in parameter.choices or ():
            if parameter.formula(value, operator.backward) == formula:
                return f', with {parameter.name} = "{value}"'
    return ""


def render(operators, capi, sources):
    """Write capi/include/infiniop.h, its infiniop/ops/<name>.h, capi/infiniop.pxd and sources/<name>.cpp; returns the
    sources' paths."""
    include = capi / "include"
    written, declarations = [], ""
    for position, operator in enumerate(operators):
        fields = _fields(position, operator)
        header, source, spelled, spelled_source = "", "", "", ""
        if "choice" in fields:
            header, source = _template("variant.h.in").format(**fields), _template("variant.cpp.in").format(**fields)
        for spelling, formula in operator.spellings:
            meant = fields | {"spelling": spelling, "formula": formula, "form": _form(operator, formula)}
            spelled += _template("spelling.h.in").format(**meant)
            spelled_source += _template("spelling.cpp.in").format(**meant)
        _write(include / "infiniop/ops" / f"{operator.name}.h",
               _template("operator.h.in").format(variants=header, spellings=spelled, **fields))
        path = sources / f"{operator.name}.cpp"
        _write(path, _template("operator.cpp.in").format(variants=source, spellings=spelled_source, **fields))
        written.append(path)
        declarations += _template("operator.pxd.in").format(**fields)
        if "choice" in fields:
            declarations += _template("variant.pxd.in").format(**fields)
    headers = sorted(["conv", "conv_backward", *(operator.name for operator in operators)])
    names = ["handle", "tensor_descriptor", *(f"ops/{name}" for name in headers)]
    includes = "".join(f'#include "infiniop/{name}.h"\n' for name in names)
    _write(include / "infiniop.h", _template("infiniop.h.in").format(includes=includes))
    _write(capi / "infiniop.pxd", _template("infiniop.pxd.in").format(operators=declarations.rstrip()))
    return written


def _write(path, text):
    """Only where it differs, so that nothing is compiled again for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
