"""The benchmark runs, checks before it times, and says what it measured; its numbers are nobody's business here."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from infiniop_cy.testing import CASES
from infiniop_cy.testing.conv import CONV_CASES

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def run(*arguments, script="bench.py"):
    return subprocess.run([sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True)


def test_rows_table_and_json(tmp_path):
    """Every formula, a line to repeat each row, and no peer that was not asked for."""
    done = run("--dtype", "float32", "--shape", "64", "--layout", "contiguous", "--peer", "numpy",
               "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["case"].split("(")[0] for row in rows} == {case.operator.name for case in CASES}
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
    case = next(case for case in CASES if case.operator.name == "sigmoid_backward")
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


KINDS = {"2d-1x1": ["pointwise"], "2d-1x1-stride": ["pointwise", "strided, any"], "2d-depthwise": ["depthwise 2-D"],
         "2d-groups": ["grouped, 2-3 channels each"], "3d": ["3-D"], "1d-dilated": ["1-D", "dilated, any"],
         "one-pixel": ["one-pixel image"], "many-columns": ["large kernel"], "2d-stride": ["other small kernel",
         "strided, any"], "2d": ["3x3"], "deep": ["1xN, Nx1", "strided, any"]}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_convolutions(monkeypatch, name):
    monkeypatch.syspath_prepend(str(FOLDER))
    from conv_kinds import kinds
    assert kinds(CONV_CASES[name]) == KINDS[name]


def test_layers_of_a_network(monkeypatch):
    """He et al., Deep Residual Learning (2015), table 1: 17 convolutions and three shortcuts, without biases."""
    pytest.importorskip("torchvision")
    monkeypatch.syspath_prepend(str(FOLDER))
    import zoo
    layers = zoo.collect(batch=8, wanted=["resnet18"])
    assert sum(layer.networks["resnet18"] for layer in layers) == 20
    assert len(layers) == 11
    stem, = (layer for layer in layers if layer.case.cin == 3)
    assert stem.case.name == "8x3x224x224 64*7x7 s2 p3"
    assert stem.case.shapes == ((8, 64, 112, 112), (8, 3, 224, 224), (64, 3, 7, 7))
    assert not stem.bias


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_a_wrong_gradient_of_a_layer_is_not_timed(monkeypatch, layout):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    import conv_data
    case, mask = CONV_CASES["2d-stride"], (True, True, False)
    conv_data.check_large(case, "bfloat16", layout, mask)
    right = conv_data.iop.conv_backward

    class OneOff:
        @staticmethod
        def conv_backward(*arguments, **keywords):
            got = right(*arguments, **keywords)
            got.grad_weight[2, 1, 0, 1] += 1
            return got
    monkeypatch.setattr(conv_data, "iop", OneOff)
    with pytest.raises(SystemExit, match="wrong result, not timed: grad_weight"):
        conv_data.check_large(case, "bfloat16", layout, mask)


def test_sweep_of_algorithms(tmp_path):
    pytest.importorskip("torch")
    done = run("--family", "typical", "--shape", "56 3x3 g32", "--quick", "--json", str(tmp_path / "rows.json"),
               script="conv_sweep.py")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["gradient"] for row in rows] == ["grad_input", "grad_weight"]
    assert {"grad_input:gemm", "grad_input:taps"} <= set(rows[0]["seconds"])
    assert {"grad_weight:gemm", "grad_weight:im2col"} <= set(rows[1]["seconds"])
    assert all(row["chosen"] in row["seconds"] for row in rows)


def test_rows_of_a_lent_machine(monkeypatch, tmp_path):
    """Each is on disk before the next is measured; an error is a row; after a fault of the device another process goes
    on with what is left, and a row that took the device along is not tried again."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from gpu_rows import Record, measure_all
    path, works, tried = tmp_path / "gpu.json", [True, False], []

    def row(number):
        def measure():
            if number:
                assert [r["number"] for r in json.loads(path.read_text())["rows"]] == list(range(number))
            tried.append(number)
            if number in (1, 2):
                raise ArithmeticError(f"row {number}")
            return {"seconds": 1}
        return "rows", {"number": number}, measure
    jobs = [row(number) for number in range(5)]
    shown = []
    arguments = dict(device_works=lambda: works.pop(0), show=lambda table, row: shown.append(row))
    assert not measure_all(jobs, Record(path, {"gpu": "x"}), lambda: True, **arguments)
    again = Record(path, {"gpu": "y"}, resume=True)
    assert measure_all(jobs, again, lambda: len(tried) < 4, **arguments)
    assert tried == [0, 1, 2, 3]
    assert [row.get("error") for row in json.loads(path.read_text())["rows"]] == [
        None, "ArithmeticError: row 1", "ArithmeticError: row 2", None]
    assert len(again.failures()) == 2
    assert len(shown) == 4
    assert again.facts["gpu"] == "x"


def test_rows_of_a_gpu(monkeypatch):
    """Each operator's, and a convolution's both ways, with the CPU in the GPU's place: calls, peers and checks."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(gpu, "ROTATED", 0)
    monkeypatch.setattr(gpu, "race", lambda contestants, rounds: {
        name: len([function(0)]) for name, function in contestants.items()})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setenv("INFINIOP_CY_TF32", "0")  # which rows set
    met = set()
    with gpu.iop.Handle("cpu") as handle:
        for table, key, function in gpu.jobs(handle, 1000):
            if table == "elementwise" and key["dtype"] == "float32":
                assert function()["of_copy"] > 0
                met.add(key["operator"])
        for layout, row in (("contiguous", gpu.conv_row), ("channels_last", gpu.conv_forward_row)):
            for dtype in ("float32", "bfloat16", "tf32"):
                assert row(CONV_CASES["2d-groups"], dtype, layout, handle)["flops"] > 0
    assert met == set(map(str, CASES))
