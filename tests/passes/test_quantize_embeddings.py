"""Embedding tables in 8 bits."""

import numpy as np
import onnx_ir as ir
from checks import check_unchanged

from lucid_fx.ir.verify import verify
from lucid_fx.passes.quantize_embeddings import LEAST_ELEMENTS, QuantizeEmbeddings
from lucid_fx.runtime.session import Session

ROWS = LEAST_ELEMENTS // 64


def model(table: np.ndarray) -> ir.Model:
    ids = ir.Value(name="ids", shape=ir.Shape(["n"]), type=ir.TensorType(ir.DataType.INT64))
    weight = ir.Value(
        name="table", shape=ir.Shape(table.shape), type=ir.TensorType(ir.DataType.FLOAT),
        const_value=ir.tensor(table, name="table"),
    )  # fmt: skip
    node = ir.node("Gather", [weight, ids], {"axis": 0}, name="embed")
    node.outputs[0].name, node.outputs[0].dtype = "y", ir.DataType.FLOAT
    node.outputs[0].shape = ir.Shape(["n", table.shape[1]])
    graph = ir.Graph(
        [ids], node.outputs, nodes=[node], initializers=[weight], opset_imports={"": 17}, name="g"
    )
    return ir.Model(graph, ir_version=9)


def test_rows_come_back_within_half_a_step_of_their_own_grid() -> None:
    """Rows of very different size: each has its own scale."""
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(-8, 8, (ROWS, 1)))
    table = (rng.standard_normal((ROWS, 64)) * size).astype(np.float32)
    graph = model(table)
    assert QuantizeEmbeddings().run(graph)
    verify(graph)
    ids = np.array([0, 5, ROWS - 1])
    (result,) = Session(graph).run({"ids": ids})
    step = np.abs(table[ids]).max(axis=1, keepdims=True) / 127.5
    # the largest positive value saturates at code 127, half a step low (spec section 4)
    assert (np.abs(result - table[ids]) <= step * 0.5001).all()
    assert graph.graph.initializers["table_quantized"].dtype == ir.DataType.INT8


def test_an_excluded_node_stays() -> None:
    graph = model(np.ones((ROWS, 64), np.float32))
    assert not QuantizeEmbeddings(frozenset({"embed"})).run(graph)


def test_a_small_table_stays() -> None:
    check_unchanged(
        """g (int64[3] ids) => (float[3,2] y) <float[2,2] t = {1, 2, 3, 4}> {
            y = Gather (t, ids) }""",
        QuantizeEmbeddings(),
    )
