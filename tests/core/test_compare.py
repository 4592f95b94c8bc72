"""compare(): errors are those of a plain computation, and seeded defects are named first."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from checks import model_from
from onnx import numpy_helper
from small_models import FASHION, branch, branch_feeds, fashion

import lucid_fx
from lucid_fx import paired_run
from lucid_fx.comparing import compare
from lucid_fx.comparison import Comparison
from lucid_fx.conversion import Format, convert
from lucid_fx.culprits import HEALTHY_DB, UNLIKE
from lucid_fx.errors import DataError, ModelError
from lucid_fx.graph_module import GraphModule
from lucid_fx.prepared import PreparedModule

SAMPLES = fashion(16)
BENCH = Path(__file__).parent.parent / "bench" / "compare.py"


def quantized(model: Any, format: Format = "qoperator") -> GraphModule:
    """On codes without what repairs defects: channel equalization and the accuracy guard."""
    first = lucid_fx.prepare_fx(model, example_inputs=SAMPLES[0])
    prepared = PreparedModule(
        first.float_model, first.plan, first.recipes, first.target, first.shapes, equalize=False
    )
    lucid_fx.calibrate(prepared, SAMPLES)
    return GraphModule(convert(prepared, prepared.plan, prepared.statistics(), format))


def edited(change: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    model = onnx.load(FASHION.path())
    change(model)
    return model


def scale_weight(model: onnx.ModelProto, node: str, index: Any, factor: float) -> None:
    name = next(n.input[1] for n in model.graph.node if n.name == node)
    for tensor in model.graph.initializer:
        if tensor.name == name:
            array = numpy_helper.to_array(tensor).copy()
            array[index] *= factor
            tensor.CopyFrom(numpy_helper.from_array(array, name))


@pytest.fixture(scope="module", params=["qoperator", "qdq"])
def plain(request: pytest.FixtureRequest) -> tuple[GraphModule, Comparison]:
    module = lucid_fx.quantize(FASHION.path(), SAMPLES, format=request.param)
    return module, compare(FASHION.path(), module, SAMPLES)


class TestNumbers:
    def test_an_output_has_the_ratio_of_a_plain_computation(
        self, plain: tuple[GraphModule, Comparison]
    ) -> None:
        module, found = plain
        exact = lucid_fx.trace(FASHION.path())
        pairs = [(exact(f["image"]), module(f["image"])) for f in SAMPLES]
        signal = sum(np.sum(x.astype(np.float64) ** 2) for x, _ in pairs)
        noise = sum(np.sum((x.astype(np.float64) - y) ** 2) for x, y in pairs)
        # ours is of the codes, decoded in float32
        assert found.outputs["logits"] == pytest.approx(10 * np.log10(signal / noise), abs=0.01)
        assert found.samples == len(SAMPLES)

    def test_every_activation_on_codes_is_measured(
        self, plain: tuple[GraphModule, Comparison]
    ) -> None:
        module, found = plain
        if any(node.op_type == "QLinearConv" for node in module.model.graph):
            coded = [n.outputs[0] for n in module.model.graph if n.op_type.startswith("QLinear")]
            assert len(found.rows) >= len(coded)
        assert all(row.codes_used and row.codes_used <= 256 for row in found.rows)
        assert all(0 <= (row.clipped or 0) < 1 for row in found.rows)
        assert not found.unmatched

    def test_a_layer_by_itself_loses_no_more_than_with_what_it_inherits(
        self, plain: tuple[GraphModule, Comparison]
    ) -> None:
        _, found = plain
        late = found["pw5_out" if "pw5_out" in {r.tensor for r in found.rows} else "relu5_out"]
        assert late.own_sqnr_db is not None
        assert late.sqnr_db is not None
        assert late.own_sqnr_db > late.sqnr_db

    def test_a_rounded_input_has_uniform_noise(self) -> None:
        """The first row is the graph input on its grid: its noise is step²/12 where it is dense."""
        module = lucid_fx.quantize(FASHION.path(), SAMPLES)
        row = compare(FASHION.path(), module, SAMPLES)["image"]
        assert row.max_error_steps is not None
        assert row.max_error_steps <= 0.5 + 1e-3 or row.clipped

    def test_parts_stand_for_the_whole(
        self, plain: tuple[GraphModule, Comparison], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Outputs are measured whole; of other tensors a 20th is enough, since it weighs 20 times.

        Were parts not weighed, the sample that is measured whole would count as much as all others.
        """
        module, exact = plain
        monkeypatch.setattr(paired_run, "GLANCED", math.inf)
        whole = compare(FASHION.path(), module, SAMPLES)
        monkeypatch.setattr(paired_run, "GLANCED", 600)
        parts = compare(FASHION.path(), module, SAMPLES)
        assert parts.outputs == whole.outputs == pytest.approx(exact.outputs)
        for a, b in zip(whole.rows, parts.rows, strict=True):
            assert a.tensor == b.tensor
            assert b.sqnr_db == pytest.approx(a.sqnr_db, abs=1.0)

    @pytest.mark.parametrize("group_bytes", [1, 100_000])
    def test_pieces_give_the_same_numbers(
        self, plain: tuple[GraphModule, Comparison], group_bytes: int
    ) -> None:
        module, found = plain
        again = compare(FASHION.path(), module, SAMPLES, group_bytes=group_bytes)
        for a, b in zip(found.rows, again.rows, strict=True):
            assert a.tensor == b.tensor
            assert a.own_sqnr_db == pytest.approx(b.own_sqnr_db, abs=0.1)
            assert a.sqnr_db == pytest.approx(b.sqnr_db, abs=0.1)

    def test_both_formats_tell_the_same(self) -> None:
        results = [
            compare(FASHION.path(), quantized(FASHION.path(), form), SAMPLES)
            for form in ("qdq", "qoperator")
        ]
        tables = [{row.tensor: row.own_sqnr_db for row in found.rows} for found in results]
        assert tables[0].keys() == tables[1].keys()
        for name, ratio in tables[0].items():
            assert tables[1][name] == pytest.approx(ratio, abs=0.2)

    def test_a_generator_is_enough_and_a_model_is_equal_to_itself(self) -> None:
        found = compare(FASHION.path(), FASHION.path(), (sample for sample in SAMPLES[:3]))
        assert found.samples == 3
        assert all(row.sqnr_db is None or row.sqnr_db > 100 for row in found.rows)
        assert not found.culprits


class TestSeededDefects:
    @pytest.mark.parametrize("format", ["qoperator", "qdq"])
    @pytest.mark.parametrize(
        ("node", "index"), [("fc", 3), ("proj3", 3), ("pw5", (slice(None), 3))]
    )
    def test_an_outlier_column_of_weights(self, node: str, index: Any, format: Format) -> None:
        model = edited(lambda m: scale_weight(m, node, index, 100.0))
        found = compare(model, quantized(model, format), SAMPLES)
        assert found.culprits[0].node == node
        assert found.culprits[0].reason in ("outlier weights", "outlier channel")
        assert "3" in found.culprits[0].text
        assert node in found.culprits[0].setting or found.culprits[0].layers

    @pytest.mark.parametrize("format", ["qoperator", "qdq"])
    def test_a_concat_of_unlike_ranges(self, format: Format) -> None:
        model = edited(unlike_concat)
        before = lucid_fx.trace(FASHION.path())(SAMPLES[0]["image"])
        after = lucid_fx.trace(model)(SAMPLES[0]["image"])
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-3)
        culprit = compare(model, quantized(model, format), SAMPLES).culprits[0]
        assert culprit.node == "joined"
        assert culprit.reason == "shared grid"
        assert culprit.sqnr_db < HEALTHY_DB

    @pytest.mark.parametrize("format", ["qoperator", "qdq"])
    def test_a_saturating_layer(self, format: Format) -> None:
        module = quantized(FASHION.path(), format)
        for graph_value in module.model.graph.initializers.values():
            if graph_value.name == "relu3e_out_scale":
                graph_value.const_value = lucid_fx_tensor(graph_value.const_value.numpy() / 8)
        culprit = compare(FASHION.path(), GraphModule(module.model), SAMPLES).culprits[0]
        assert culprit.node == "exp3"
        assert culprit.reason == "clipped range"
        assert "minmax" in culprit.setting

    def test_nothing_is_named_where_nothing_is_wrong(self) -> None:
        module = lucid_fx.quantize(FASHION.path(), fashion(32))
        worst = compare(FASHION.path(), module, fashion(32)).worst(1)[0].own_sqnr_db
        assert worst is not None
        assert worst > HEALTHY_DB


def lucid_fx_tensor(array: Any) -> Any:
    import onnx_ir as ir

    return ir.tensor(array)


def unlike_concat(model: onnx.ModelProto) -> None:
    """Put half of the channels in front of exp3 on a scale 8 · UNLIKE as large; undo it behind."""
    graph = model.graph
    reader = next(n for n in graph.node if n.name == "exp3")
    source, times = reader.input[0], 8 * UNLIKE
    weight = next(t for t in graph.initializer if t.name == reader.input[1])
    half = numpy_helper.to_array(weight).shape[1] // 2
    scale_weight(model, "exp3", (slice(None), slice(half, None)), 1 / times)
    for name, array in (
        ("start", [0]), ("half", [half]), ("end", [2 * half]), ("axis", [1])
    ):  # fmt: skip
        graph.initializer.append(numpy_helper.from_array(np.array(array, np.int64), name))
    graph.initializer.append(numpy_helper.from_array(np.float32(times), "times"))
    made = [
        onnx.helper.make_node("Slice", [source, "start", "half", "axis"], ["low"], "first"),
        onnx.helper.make_node("Slice", [source, "half", "end", "axis"], ["high"], "second"),
        onnx.helper.make_node("Mul", ["high", "times"], ["large"], "enlarged"),
        onnx.helper.make_node("Concat", ["low", "large"], ["both"], "joined", axis=1),
    ]
    at = list(graph.node).index(reader)
    for node in reversed(made):
        graph.node.insert(at, node)
    next(n for n in graph.node if n.name == "exp3").input[0] = "both"


class TestOtherModels:
    def test_nodes_in_bodies_do_not_disturb(self) -> None:
        model, feeds = branch(), branch_feeds(True, False, True)
        module = lucid_fx.quantize(model, feeds)
        found = compare(model, module, feeds)
        assert {"x", "t"} & {row.tensor for row in found.rows}

    @pytest.mark.parametrize("form", ["QDQ", "QOperator"])
    def test_models_of_another_quantizer(self, tmp_path: Path, form: str) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.feeds: Iterator[Any] = iter(SAMPLES)

            def get_next(self) -> Any:
                return next(self.feeds, None)

        out = tmp_path / "theirs.onnx"
        quantize_static(
            str(FASHION.path()), str(out), Reader(), quant_format=getattr(QuantFormat, form)
        )
        found = compare(FASHION.path(), out, SAMPLES)
        assert len(found.rows) > 15
        assert (found.outputs["logits"] or 0) > 5

    def test_a_rescaled_tensor_is_not_taken_for_the_float_one(self) -> None:
        """FuseHardSwish moves a sixth from one op to the next."""
        text = """g (float[1,4,8,8] x) => (float[1,4,8,8] z)
            <float[4,4,1,1] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float three = {3},
             float zero = {0}, float six = {6}> {
            [conv] y = Conv (x, w)
            [add] a = Add (y, three)
            [clip] c = Clip (a, zero, six)
            [mul] m = Mul (y, c)
            [div] s = Div (m, six)
            [last] z = Conv (s, w)
        }"""
        model = model_from(text, prepare=False)
        rng = np.random.default_rng(0)
        feeds = [{"x": rng.normal(0, 3, (1, 4, 8, 8)).astype(np.float32)} for _ in range(4)]
        found = compare(model, lucid_fx.quantize(model, feeds), feeds)
        assert all((row.own_sqnr_db or 99) > 25 for row in found.rows), found.text()


class TestErrors:
    def test_no_samples(self) -> None:
        with pytest.raises(DataError, match="no samples"):
            compare(FASHION.path(), FASHION.path(), [])

    def test_models_with_unlike_inputs(self) -> None:
        other = model_from("g (float[2] x) => (float[2] y) { y = Relu (x) }", prepare=False)
        with pytest.raises(ModelError, match="input 'x'"):
            compare(FASHION.path(), other, SAMPLES)

    def test_a_sample_that_does_not_fit_is_named(self) -> None:
        bad = [SAMPLES[0], {"image": np.zeros((1, 28, 28), np.float32)}]
        with pytest.raises(DataError, match="sample 1"):
            compare(FASHION.path(), FASHION.path(), bad)


def test_json_and_html_hold_everything() -> None:
    model = edited(lambda m: scale_weight(m, "proj3", 3, 100.0))
    found = compare(model, quantized(model), SAMPLES)
    report = json.loads(found.to_json())
    assert [row["tensor"] for row in report["tensors"]] == [row.tensor for row in found.rows]
    assert report["culprits"][0]["node"] == "proj3"
    assert "proj3" in found._repr_html_()
    assert "proj3" in str(found)


@pytest.mark.fetched
@pytest.mark.slow
def test_memory_and_time_on_a_large_model() -> None:
    """Measured: 1.9 times the CPU time of two plain runs, and 175 MB; the rest is for noise."""
    command = [sys.executable, str(BENCH), "--model", "ppocr_rec", "--repeats", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["cpu_ratio"] < 4
    assert row["extra_mb"] < 260
