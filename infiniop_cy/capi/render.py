"""The C functions of each row of operators.py, from the templates beside this file. Run by setup.py."""
import pathlib

HERE = pathlib.Path(__file__).parent


def _template(name):
    return (HERE / name).read_text()


def _fields(position, row):
    """What the templates leave open."""
    numbers = [p for p in row.parameters if not p.choices]
    choices = [p for p in row.parameters if p.choices]
    kinds = {p.name: "bool" if isinstance(p.default, bool) else "float" for p in numbers}
    fields = {
        "name": row.name, "guard": row.name.upper(),
        "Name": "".join(part.capitalize() for part in row.name.split("_")),
        "gradient": row.gradient, "position": position, "promotes": str(row.promotes).lower(), "count": len(numbers),
        "formula": choices[0].choices[choices[0].default] if choices else row.name,
        "arguments": "".join(f", {kinds[p.name]} {p.name}" for p in numbers),
        "values": "".join(f"double({p.name}), " for p in numbers),
        "dtypes": "; inputs may differ and promote, grad_input may be any" if row.promotes else ", all the same",
        "documentation": "".join(f"   {p.name}: {' '.join(p.doc.split())}\n" for p in numbers),
        "refusal": f", or {row.constraint.split(', ', 1)[0].split()[0]} out of range" if row.constraint else "",
    }
    if choices:
        fields["choice"] = choices[0].name
        fields["options"] = ", ".join(f'{i} for "{value}"' for i, value in enumerate(choices[0].choices))
        fields["formulas"] = ", ".join(f'"{formula}"' for formula in choices[0].choices.values())
    return fields


def _form(row, formula):
    """Which form of the operator a formula is, in words; nothing where there is but one."""
    for parameter in row.parameters:
        for value, name in (parameter.choices or {}).items():
            if name == formula:
                return f', with {parameter.name} = "{value}"'
    return ""


def render(rows, capi, sources):
    """Write capi/include/infiniop.h, its infiniop/ops/<name>.h, capi/infiniop.pxd and sources/<name>.cpp; returns the
    sources' paths."""
    include = capi / "include"
    written, declarations = [], ""
    for position, row in enumerate(rows):
        fields = _fields(position, row)
        header, source, spelled, spelled_source = "", "", "", ""
        if "choice" in fields:
            header, source = _template("variant.h.in").format(**fields), _template("variant.cpp.in").format(**fields)
        for spelling, formula in row.spellings:
            meant = fields | {"spelling": spelling, "formula": formula, "form": _form(row, formula)}
            spelled += _template("spelling.h.in").format(**meant)
            spelled_source += _template("spelling.cpp.in").format(**meant)
        _write(include / "infiniop/ops" / f"{row.name}.h",
               _template("operator.h.in").format(variants=header, spellings=spelled, **fields))
        path = sources / f"{row.name}.cpp"
        _write(path, _template("operator.cpp.in").format(variants=source, spellings=spelled_source, **fields))
        written.append(path)
        declarations += _template("operator.pxd.in").format(**fields)
        if "choice" in fields:
            declarations += _template("variant.pxd.in").format(**fields)
    operators = sorted(["conv", "conv_backward", *(row.name for row in rows)])
    names = ["handle", "tensor_descriptor", *(f"ops/{name}" for name in operators)]
    includes = "".join(f'#include "infiniop/{name}.h"\n' for name in names)
    _write(include / "infiniop.h", _template("infiniop.h.in").format(includes=includes))
    _write(capi / "infiniop.pxd", _template("infiniop.pxd.in").format(operators=declarations.rstrip()))
    return written


def _write(path, text):
    """Only where it differs, so that nothing is compiled again for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
