"""The table, the formulas, the public names and the documents agree; a missing line is named."""
import inspect
import pathlib
import pickle

import pytest

import infiniop_cy as iop
from infiniop_cy.core._core import formula_names
from infiniop_cy.operators import OPERATORS, ROWS

ROOT = pathlib.Path(__file__).parent.parent
each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)


@each_operator
def test_every_row_has_its_formulas(operator):
    for formula in operator.formulas:
        assert formula in formula_names(), (
            f"operators.py has {operator.name!r}, but kernels/formulas_*.h lack a struct for {formula!r}, "
            "or its name in the list `formulas` of formulas.h")


def test_every_formula_has_its_row():
    for formula in formula_names():
        assert any(formula in operator.formulas for operator in OPERATORS), (
            f"kernels/formulas_*.h have a struct for {formula!r}, but ROWS in operators.py has no row of that name, "
            "nor one with it among a parameter's choices")


@each_operator
def test_function_and_descriptor_are_public(operator):
    name = operator.class_name + "Descriptor"
    assert operator.name in iop.__all__
    assert name in iop.__all__
    assert getattr(iop, name).definition is operator


@each_operator
def test_function_is_an_object_with_name_signature_and_doc(operator):
    function = getattr(iop, operator.name)
    signature = inspect.signature(function)
    names = list(signature.parameters)
    assert names[:len(operator.inputs)] == list(operator.inputs)
    options = ["out", "accumulate", "device", "num_threads"] if operator.backward else ["out", "device", "num_threads"]
    assert names[-len(options):] == options
    for parameter in operator.parameters:
        assert signature.parameters[parameter.name].default == parameter.default
        assert parameter.name in function.__doc__
    for word in (operator.expression, operator.source, "Raises", "out :", "num_threads"):
        assert word in function.__doc__
    assert function.__name__ == operator.name
    assert operator.name in repr(function)
    assert pickle.loads(pickle.dumps(function)) is function


def test_readme_has_the_table():
    assert "".join(map(readme_row, ROWS)) in (ROOT / "README.md").read_text(), (
        "README.md lacks these rows:\n" + "".join(map(readme_row, ROWS)))


def readme_row(row):
    """A row as README.md shows it: the name of both functions, their formulas, the parameters."""
    def shown(p):
        values = " or ".join(f'`"{value}"`' for value in list(p.choices)[1:]) if p.choices else ""
        default = f'"{p.default}"' if p.choices else p.default
        return f"`{p.name}={default}`" + f" or {values}" * bool(values) + " (backward)" * p.of_gradient
    return f"| `{row.name}` | `{row.value}` | `{row.gradient}` | {', '.join(map(shown, row.parameters))} |\n"


def test_conv_is_public_and_documented():
    signature = inspect.signature(iop.conv_backward)
    assert list(signature.parameters) == [
        "grad_output", "input", "weight", "stride", "padding", "dilation", "groups", "output_mask", "out", "accumulate",
        "device", "num_threads"]
    assert "`conv_backward`" in (ROOT / "README.md").read_text()
    assert iop.ConvGradients._fields == ("grad_input", "grad_weight", "grad_bias")


def test_readme_example_prints_what_it_says(capsys):
    import re
    code, output = re.search(r"```python\n(.*?)```\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.S).groups()
    exec(code, {})
    assert capsys.readouterr().out == output
