"""A Sphinx extension: a page, a curve and a picture of errors for each row of operators.py, when the site is built.

It writes docs/generated, from which the hand-written pages include. A new operator appears by itself, but for its
errors, which tools/accuracy_atlas.py measures.
"""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
from pictures import draw_curves, draw_errors
from sphinx.util import logging

import infiniop_cy as iop
from infiniop_cy.operators import ROWS, Operator
from infiniop_cy.testing import DTYPES

logger = logging.getLogger(__name__)
POINTS = (-np.inf, -20.0, -3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 20.0, np.inf, np.nan)
WHOSE = ("infiniop_cy", "torch")


def write(path, text):
    """Only where it differs, so that Sphinx reads nothing again for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def table(header, rows, widths=""):
    """A list-table in reStructuredText."""
    lines = ["", ".. list-table::", "   :header-rows: 1", *([f"   :widths: {widths}"] if widths else []), ""]
    for row in (header, *rows):
        lines += [f"   {'*' if not i else ' '} - {cell}" for i, cell in enumerate(row)]
    return "\n".join([*lines, ""])


def directions(row):
    return Operator(row, backward=False), Operator(row, backward=True)


def cases_of(row, atlas):
    """The names under which the row's errors were measured, both directions."""
    names = {operator.name for operator in directions(row)}
    return [name for name in atlas["cases"] if name.split("(")[0] in names]


def number(value):
    return f"{value:.6g}".replace("inf", "∞").replace("nan", "NaN")


def values(row):
    """What both functions give at points where operators differ, in float32."""
    x = np.array(POINTS, np.float32)
    found = getattr(iop, row.name)(x), getattr(iop, f"{row.name}_backward")(np.ones_like(x), x)
    return table(("x", f"``{row.name}(x)``", f"``{row.name}_backward(1, x)``"),
                 [[number(v) for v in column] for column in zip(POINTS, *found)])


def c_functions(row):
    return table(("infiniop (C)", "does"), [
        (f"``infiniop{verb.format(operator.class_name)}``", what) for operator in directions(row) for verb, what in (
            ("Create{}Descriptor", f"plans {operator.name}: {', '.join(operator.tensors)}"),
            ("Get{}WorkspaceSize", "bytes that a call needs"), ("{}", "computes"),
            ("Destroy{}Descriptor", "frees the plan"))])


def page(row, atlas):
    """The page of one row, in reStructuredText."""
    forward, backward = directions(row)
    lines = [f".. _operator-{row.name}:", "", row.name, "=" * len(row.name), "",
             f"``{forward.expression}``", "",
             f"Gradient, with g = grad_output: ``{backward.expression}``", "",
             f".. image:: /generated/pictures/{row.name}.svg", "   :class: dark-light",
             f"   :alt: {row.name} and its derivative", ""]
    lines += [f".. autofunction:: infiniop_cy.{operator.name}\n" for operator in (forward, backward)]
    lines += ["Values", "------", "", "In float32; the limits are kept where a formula would be NaN.", "", values(row)]
    if cases_of(row, atlas):
        lines += ["Accuracy", "--------", "",
                  "The largest error in ulp around each x (:doc:`how it was measured </atlas>`).", "",
                  f".. image:: /generated/pictures/{row.name}-errors.svg", "   :class: dark-light",
                  f"   :alt: errors of {row.name} in ulp against x", ""]
    lines += ["Descriptors", "-----------", "",
              "Planned once and run often: :doc:`/reference/descriptors` has the methods.", ""]
    lines += [f".. autoclass:: infiniop_cy.{operator.class_name}Descriptor\n" for operator in (forward, backward)]
    lines += ["In C", "----", "", ":doc:`/c-api` says how they are called.", "", c_functions(row)]
    return "\n".join(lines)


def overview():
    """The table of all operators, and their pages."""
    def shown(p):
        return f"``{p.name}={p.default!r}``" + (f" or ``{list(p.choices)[1]!r}``" if p.choices else "")
    rows = [(f":ref:`operator-{row.name}`", f"``{row.value}``", f"``{row.gradient}``",
             ", ".join(map(shown, row.parameters)) or "\\-") for row in ROWS]
    pages = "".join(f"   /generated/operators/{row.name}\n" for row in ROWS)
    return table(("function", "of x", "its gradient, ``..._backward``", "parameters"), rows, "12 32 38 18") + (
        f"\n.. toctree::\n   :hidden:\n\n{pages}")


def worst(errors):
    """The largest error over all x, in words."""
    if errors is None:
        return "\\-"
    largest = max(float(e) for e in errors if e is not None)
    if np.isinf(largest):
        return "NaN, inf"
    return f"{largest:.2g}" if largest < 10 else f"{largest:.0f}" if largest < 1e4 \
        else f"{largest:.1e}".replace("e+0", "e").replace("e+", "e")


def atlas_pages(atlas):
    """The table of worst errors, and all pictures."""
    rows = [(f"``{case}``", *(" | ".join(worst(found[dtype].get(whose)) for whose in WHOSE) for dtype in DTYPES))
            for case, found in atlas["cases"].items()]
    about = ", ".join(f"{what} {value}" for what, value in atlas["about"].items() if value)
    pictures = "".join(f"\n{row.name}\n{'-' * len(row.name)}\n\n.. image:: /generated/pictures/{row.name}-errors.svg\n"
                       f"   :class: dark-light\n   :alt: errors of {row.name} in ulp against x\n"
                       f"   :target: generated/operators/{row.name}.html\n"
                       for row in ROWS if cases_of(row, atlas))
    return f"Measured with {about}.\n" + table(("infiniop_cy | torch", *DTYPES), rows, "40 15 15 15 15"), pictures


def help_of(command):
    """What infiniop-cy COMMAND --help prints."""
    return subprocess.run([sys.executable, "-m", "infiniop_cy", command, "--help"], env=os.environ | {"COLUMNS": "110"},
                          capture_output=True, text=True, check=True).stdout


def generate(app):
    """Write all of docs/generated, before Sphinx looks for pages."""
    source = pathlib.Path(app.srcdir)
    made = source / "generated"
    if app.builder.name == "doctest":  # it runs what is there
        return
    atlas = json.loads((source / "accuracy.json").read_text())
    for row in ROWS:
        if len(cases_of(row, atlas)) < 2:
            logger.warning("docs/accuracy.json lacks %s: tools/accuracy_atlas.py --op %s", row.name, row.name)
        write(made / "operators" / f"{row.name}.rst", page(row, atlas))
        draw_curves(made / "pictures" / f"{row.name}.svg", row)
        draw_errors(made / "pictures" / f"{row.name}-errors.svg", atlas, cases_of(row, atlas))
    write(made / "operators.inc", overview())
    write(made / "check-help.txt", help_of("check"))
    for name, text in zip(("atlas-table.inc", "atlas-pictures.inc"), atlas_pages(atlas)):
        write(made / name, text)


def setup(app):
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
