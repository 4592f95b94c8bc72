"""The op ``lucid_fx.Observe`` inside onnxruntime sessions."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from native_build import SOURCE, native
from numpy.typing import NDArray
from onnx import TensorProto, helper

from lucid_fx.native.observers import NativeObservers, ObserverState

LIBRARY = native()
OBSERVERS = NativeObservers(LIBRARY)
KEY = "test_observe_op"
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    OBSERVERS.reset(KEY)
    yield
    OBSERVERS.reset(KEY)


def observe(tensor: str, **attributes: Any) -> onnx.NodeProto:
    attributes = {"key": KEY, "kind": "minmax"} | attributes
    return helper.make_node("Observe", [tensor], [f"{tensor}_tap"], domain="lucid_fx", **attributes)


def value(name: str, dtype: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def session(graph: onnx.GraphProto, threads: int = 1) -> onnxruntime.InferenceSession:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("lucid_fx", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.register_custom_ops_library(str(LIBRARY.path))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def tapped(dtype: int = FLOAT, threads: int = 1, **attributes: Any) -> onnxruntime.InferenceSession:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        observe("a", **attributes),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "tapped", [value("x", dtype)], [value("y", dtype)])
    return session(graph, threads)


def run(s: onnxruntime.InferenceSession, x: NDArray[Any]) -> None:
    (y,) = s.run(None, {"x": x})
    np.testing.assert_array_equal(y, x)  # a tap changes nothing


def state(key: str = KEY) -> ObserverState:
    found = OBSERVERS.state(key)
    assert found is not None
    return found


def direct(*batches: NDArray[Any], **options: Any) -> ObserverState:
    OBSERVERS.reset(KEY + "/direct")
    for batch in batches:
        OBSERVERS.update(KEY + "/direct", batch, **options)
    return state(KEY + "/direct")


def same(a: ObserverState, b: ObserverState) -> None:
    for name in ObserverState.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def batch(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kind": "minmax"},
        {"kind": "moving_average", "averaging_constant": 0.25},
        {"kind": "per_channel", "ch_axis": 1},
        {"kind": "per_channel_moving_average", "ch_axis": -3},
        {"kind": "histogram", "bins": 100},
    ],
)
def test_a_tap_records_what_the_kernels_record(attributes: dict[str, Any]) -> None:
    s = tapped(**attributes)
    batches = [batch(2, 3, size, 5, seed=size) for size in (1, 40, 7, 2000)]
    for x in batches:
        run(s, -x)
    same(state(), direct(*batches, **attributes))


@pytest.mark.parametrize(
    ("onnx_type", "dtype"),
    [(TensorProto.FLOAT16, np.float16), (TensorProto.DOUBLE, np.float64)],
)
@pytest.mark.parametrize("kind", ["minmax", "per_channel", "histogram"])
def test_other_float_types(onnx_type: int, dtype: type[np.floating[Any]], kind: str) -> None:
    x = batch(5, 3000).astype(dtype)
    run(tapped(onnx_type, kind=kind), -x)
    same(state(), direct(x.astype(np.float32), kind=kind))


def test_shapes_vary_down_to_scalars_and_nothing() -> None:
    s = tapped()
    for shape in [(), (3,), (0, 4), (2, 3, 4), (1,) * 9]:
        run(s, np.ones(shape, np.float32))
    assert (state().batches, state().elements, state().max_elements) == (4, 29, 24)
    assert (state().min_val, state().max_val) == (-1, -1)


def test_constant_inputs_are_observed() -> None:
    weight = onnx.numpy_helper.from_array(batch(8, 9), "w")
    nodes = [
        observe("w", kind="per_channel"),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], [weight])
    session(graph).run(None, {"x": batch(1, 8)})
    np.testing.assert_array_equal(state().channel_max, batch(8, 9).max(axis=1))


def test_inside_both_branches_of_an_if() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [helper.make_node(op, ["x"], [name]), observe(name, key=f"{KEY}/{name}")]
        return helper.make_graph(nodes, name, [], [value(name)])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("then", "Abs"), else_branch=branch("else", "Neg")
    )
    s = session(helper.make_graph([node], "g", [value("c", BOOL, []), value("x")], [value("y")]))
    x = np.array([-1, 2], np.float32)
    s.run(None, {"c": np.array(True), "x": x})
    assert OBSERVERS.state(f"{KEY}/else") is None
    assert (state(f"{KEY}/then").min_val, state(f"{KEY}/then").max_val) == (1, 2)
    s.run(None, {"c": np.array(False), "x": x})
    assert (state(f"{KEY}/else").min_val, state(f"{KEY}/else").max_val) == (-2, 1)


def test_inside_a_loop_every_iteration_is_a_batch() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v_in", "v_in"], ["v"]),
            observe("v"),
            helper.make_node("Identity", ["cond_in"], ["cond"]),
        ],
        "body",
        [value("i", INT64, []), value("cond_in", BOOL, []), value("v_in")],
        [value("cond", BOOL, []), value("v")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    s = session(helper.make_graph([node], "g", [value("n", INT64, []), value("x")], [value("y")]))
    (y,) = s.run(None, {"n": np.array(5), "x": np.array([1, -1], np.float32)})
    np.testing.assert_array_equal(y, [32, -32])
    assert (state().batches, state().min_val, state().max_val) == (5, -32, 32)


def test_inside_a_scan() -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["row"], ["out"]), observe("out", kind="histogram", bins=4)],
        "body",
        [value("row", FLOAT, [3])],
        [value("out", FLOAT, [3])],
    )
    node = helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph = helper.make_graph([node], "g", [value("x", FLOAT, ["n", 3])], [value("y")])
    session(graph).run(None, {"x": -x})
    assert state().batches == 4
    same(state(), direct(*x, kind="histogram", bins=4))


@pytest.mark.parametrize("kind", ["minmax", "per_channel", "histogram"])
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_threads_do_not_change_a_bit(kind: str, axis: int) -> None:
    x = batch(4, 6, 150, 150)
    x[1, 2, 3, 4:9] = [np.nan, np.inf, -np.inf, 40, -40]
    expected = direct(-x, kind=kind, ch_axis=axis)
    for threads in (1, 2, 4):
        OBSERVERS.reset(KEY)
        run(tapped(threads=threads, kind=kind, ch_axis=axis), x)
        same(state(), expected)


def test_sessions_with_one_key_share_their_state() -> None:
    first, second = tapped(), tapped()
    run(first, np.array([1.0], np.float32))
    run(second, np.array([-1.0], np.float32))
    assert (state().batches, state().min_val, state().max_val) == (2, -1, 1)
    del first
    run(second, np.array([-3.0], np.float32))
    assert (state().batches, state().max_val) == (3, 3)


def test_a_live_session_goes_on_after_a_reset() -> None:
    s = tapped()
    run(s, np.array([9.0], np.float32))
    OBSERVERS.reset(KEY)
    assert OBSERVERS.state(KEY) is None
    run(s, np.array([1.0], np.float32))
    assert (state().batches, state().min_val, state().max_val) == (1, -1, -1)


def test_the_output_is_an_empty_tensor() -> None:
    graph = helper.make_graph([observe("x")], "g", [value("x")], [value("x_tap")])
    s = session(graph)
    assert s.get_outputs()[0].shape == [0]
    (tap,) = s.run(None, {"x": batch(3)})
    assert (tap.shape, tap.dtype) == ((0,), np.float32)


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ({"kind": "median"}, "median"),
        ({"kind": "histogram", "bins": 0}, "bins is 0"),
        ({"kind": "moving_average", "averaging_constant": -1.0}, "averaging_constant"),
        ({"key": KEY + "/taken", "kind": "histogram"}, "kind minmax"),
    ],
)
def test_a_wrong_attribute_fails_when_the_session_is_made(
    attributes: dict[str, Any], word: str
) -> None:
    OBSERVERS.update(KEY + "/taken", batch(3), kind="minmax")
    with pytest.raises(Exception, match=word):
        tapped(**attributes)


def test_a_wrong_shape_fails_the_run_and_records_nothing() -> None:
    s = tapped(kind="per_channel", ch_axis=1)
    run(s, batch(2, 3))
    for shape in [(4,), (2, 4)]:
        with pytest.raises(Exception, match=KEY):
            run(s, batch(*shape))
    assert state().batches == 1


def test_runs_of_many_threads_all_count() -> None:
    sessions = [tapped(kind="histogram"), tapped(kind="histogram", threads=2)]
    x = batch(2, 40_000)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: run(sessions[i % 2], x * (1 + i % 3)), range(60)))
    found = state()
    assert found.histogram is not None
    assert (found.batches, found.histogram.sum()) == (60, 60 * x.size)
    assert (found.min_val, found.max_val) == (-3 * x.max(), -3 * x.min())


def test_an_older_onnxruntime_gets_a_status_that_says_so() -> None:
    said: list[bytes] = []
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(
        lambda _, text: said.append(text) or 1
    )
    table = (ctypes.c_void_p * 1)(ctypes.cast(create, ctypes.c_void_p))
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(
        lambda version: ctypes.addressof(table) if version < 18 else None
    )
    base = (ctypes.c_void_p * 2)(ctypes.cast(get_api, ctypes.c_void_p), None)
    register = ctypes.CDLL(str(LIBRARY.path)).RegisterCustomOps
    register.restype = ctypes.c_void_p
    assert register(None, base) == 1
    assert said == [b"the lucid_fx library needs onnxruntime 1.18 or newer"]


ABI_CHECK = """
#include <onnxruntime_c_api.h>
#include "ort_abi.h"
#define SAME_SLOT(index, name, result, arguments) \\
  static_assert(offsetof(OrtApi, name) == index * sizeof(void*), #name);
LUCID_FX_ORT_SLOTS(SAME_SLOT)
#define SAME_FIELD(name) \\
  static_assert(offsetof(OrtCustomOp, name) == offsetof(lucid_fx::ort::CustomOp, name), #name);
"""


def test_abi_is_that_of_the_official_header(tmp_path: Path) -> None:
    """Where one is installed; ``ORT_INCLUDE`` names another place."""
    places = [os.environ.get("ORT_INCLUDE", ""), "/usr/include/onnxruntime", "/usr/include"]
    header = next((p for p in places if Path(p, "onnxruntime_c_api.h").is_file()), None)
    if header is None:
        pytest.skip("no onnxruntime header on this machine")
    ours = (SOURCE / "native" / "ort_abi.h").read_text()
    struct = ours[ours.index("struct CustomOp {") :]
    fields = ["version", *re.findall(r"\(\*(\w+)\)", struct)]
    assert len(fields) == 26
    source = tmp_path / "check.cc"
    source.write_text(ABI_CHECK + "\n".join(f"SAME_FIELD({name})" for name in fields))
    includes = [f"-I{header}", f"-I{SOURCE / 'native'}"]
    command = ["c++", "-std=c++17", "-fsyntax-only", *includes, str(source)]
    subprocess.run(command, check=True)
