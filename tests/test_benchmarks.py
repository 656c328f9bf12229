"""The benchmark runs, checks before it times, and says what it measured; its numbers are nobody's business here."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from infiniop_cy.testing import CASES

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def run(*arguments, script="bench.py"):
    return subprocess.run([sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True)


def test_rows_table_and_json(tmp_path):
    """Every formula, a line to repeat each row, and no peer that was not asked for."""
    done = run("--dtype", "float32", "--shape", "64", "--layout", "contiguous", "--peer", "numpy",
               "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["case"].split("(")[0] for row in rows} == {case.row.name for case in CASES}
    for row in rows:
        assert row["seconds"]["ours"] > 0
        assert "torch" not in row["seconds"]
        assert f"--op '{row['case']}'" in done.stdout


@pytest.mark.parametrize("layout", ["x channels last", "g inner"])
def test_layouts(layout):
    done = run("--op", "relu", "--dtype", "bfloat16", "--shape", "2x3x4x5", "--layout", layout, "--peer", "numpy")
    assert done.returncode == 0, done.stderr
    assert f"--layout '{layout}'" in done.stdout


def test_a_wrong_result_is_not_timed(monkeypatch):
    """The check sees a single element that is off by more than the promise."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import bench
    case = next(case for case in CASES if case.row.name == "sigmoid_backward")
    g, x = np.random.default_rng(3).normal(size=(2, 1000)).astype("f4")
    got = case(g, x)
    bench.check(case, got, g, x)
    got[437] *= np.float32(1.00001)
    with pytest.raises(SystemExit, match="wrong result"):
        bench.check(case, got, g, x)


def test_no_row_fits():
    done = run("--op", "no such operator", "--peer", "numpy")
    assert done.returncode != 0
    assert "no row fits" in done.stderr


def test_convolutions(tmp_path):
    done = run("--shape", "1024 k5", "--part", "all,grad_bias", "--peer", "none", "--threads", "1",
               "--json", str(tmp_path / "rows.json"), script="conv.py")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["part"] for row in rows] == ["all", "grad_bias"]
    assert all(set(row["seconds"]) == {"ours"} for row in rows)


def test_convolution_shapes_have_distinct_names_and_pixels(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from conv import TARGETS
    from conv_shapes import FAMILIES
    for family, cases in FAMILIES.items():
        assert len({case.name for case in cases}) == len(cases), family
        assert all(min(case.out_size) > 0 for case in cases)
    assert set(TARGETS) == {case.name for case in FAMILIES["typical"]}
