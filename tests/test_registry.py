"""The table, the formulas, the public names and the documents agree; a missing line is named."""
import inspect
import pathlib
import pickle

import pytest

import infiniop_cy as iop
from infiniop_cy.core._core import formula_names
from infiniop_cy.operators import ROWS

ROOT = pathlib.Path(__file__).parent.parent
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def formulas_of(row):
    chosen = [formula for p in row.parameters if p.choices for formula in p.choices.values()]
    return chosen or [row.name]


@each_row
def test_every_row_has_its_formulas(row):
    for formula in formulas_of(row):
        assert formula in formula_names(), (
            f"operators.py has a row {row.name!r}, but kernels/formulas.h lacks a struct {formula!r}, "
            "or its name in the list `formulas` at the end")


def test_every_formula_has_its_row():
    for formula in formula_names():
        assert any(formula in formulas_of(row) for row in ROWS), (
            f"kernels/formulas.h has a struct {formula!r}, but ROWS in operators.py has no row of that name, "
            "nor one with it among a parameter's choices")


@each_row
def test_function_and_descriptor_are_public(row):
    name = "".join(part.capitalize() for part in row.name.split("_")) + "Descriptor"
    assert row.name in iop.__all__
    assert name in iop.__all__
    assert getattr(iop, name).row is row


@each_row
def test_function_is_an_object_with_name_signature_and_doc(row):
    function = getattr(iop, row.name)
    signature = inspect.signature(function)
    names = list(signature.parameters)
    assert names[:2] == ["grad_output", "input"]
    assert names[-4:] == ["out", "accumulate", "device", "num_threads"]
    for parameter in row.parameters:
        assert signature.parameters[parameter.name].default == parameter.default
        assert parameter.name in function.__doc__
    for word in (row.gradient, row.source, "Raises", "out:", "num_threads"):
        assert word in function.__doc__
    assert function.__name__ == row.name
    assert row.name in repr(function)
    assert pickle.loads(pickle.dumps(function)) is function


@each_row
def test_readme_has_the_formula(row):
    readme = (ROOT / "README.md").read_text()
    assert f"`{row.name}`" in readme, f"README.md's table of operators lacks {row.name}"
    assert f"`{row.gradient}`" in readme, f"README.md does not give {row.name}'s formula as {row.gradient!r}"


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
