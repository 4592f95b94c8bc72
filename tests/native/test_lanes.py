"""Samples side by side in sessions of the native library: each once, in order, and nobody waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from native_build import native
from numpy.typing import NDArray
from onnx import TensorProto, helper

from lucid_fx.errors import NativeLibraryError
from lucid_fx.native.lanes import Lanes, LaneSession
from lucid_fx.native.observers import NativeObservers, ObserverState
from lucid_fx.runtime.session import load_into_onnxruntime

LIBRARY = native()
OBSERVERS = NativeObservers(LIBRARY)
KEY = "test_lanes"
AVERAGE = {"kind": "moving_average", "averaging_constant": 0.25}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    OBSERVERS.reset(KEY)
    yield
    OBSERVERS.reset(KEY)


def model(nodes: list[onnx.NodeProto], **inputs: int) -> bytes:
    """Nodes from graph inputs, given as name = element type, to y."""
    given = [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("lucid_fx", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def observe(tensor: str, key: str = KEY, **attributes: Any) -> onnx.NodeProto:
    attributes = {"key": key, "kind": "minmax"} | attributes
    return helper.make_node("Observe", [tensor], [f"{tensor}_tap"], domain="lucid_fx", **attributes)


def tapped(**attributes: Any) -> LaneSession:
    """One that observes 3 x, and then needs an x of two columns."""
    nodes = [
        helper.make_node("Constant", [], ["three"], value_float=3.0),
        helper.make_node("Mul", ["x", "three"], ["a"]),
        observe("a", **attributes),
        helper.make_node("Constant", [], ["two"], value_floats=[1.0, 2.0]),
        helper.make_node("Mul", ["a", "two"], ["y"]),
    ]
    return opened(model(nodes, x=TensorProto.FLOAT))


def opened(source: bytes | Path, output: str = "y", **options: Any) -> LaneSession:
    load_into_onnxruntime(LIBRARY.path)
    return LaneSession(LIBRARY, source, output, **options)


def state(key: str = KEY) -> ObserverState:
    found = OBSERVERS.state(key)
    assert found is not None
    return found


def direct(*batches: NDArray[Any], **options: Any) -> ObserverState:
    for batch in batches:
        OBSERVERS.update(KEY + "/direct", batch, **options)
    return state(KEY + "/direct")


def same(a: ObserverState, b: ObserverState) -> None:
    for name in ObserverState.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def batch(rows: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, 2)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("attributes", [AVERAGE, {"kind": "histogram", "bins": 64}])
def test_observers_take_samples_in_their_order(threads: int, attributes: dict[str, Any]) -> None:
    sizes = np.random.default_rng(1).integers(0, 20_000, 80)  # late ones often come first
    sizes[7] = 0  # records nothing, and yet has its turn
    batches = [batch(size, at) * (1 + at % 5) for at, size in enumerate(sizes)]
    session = tapped(**attributes)
    with Lanes(session, threads) as lanes:
        counts = []
        for x in batches:
            assert lanes.put({"x": x})
            counts.append(lanes.done)
        lanes.finish()
        assert lanes.done == 80
    assert counts == sorted(counts)
    assert max(at - done for at, done in enumerate(counts)) <= 3 * threads  # not far ahead
    same(state(), direct(*(3 * x for x in batches), **attributes))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_first_failure_in_order_is_told_and_nobody_waits_for_it(threads: int) -> None:
    session = tapped()
    samples = [batch(100) if at != 5 else np.ones((4, 7), np.float32) for at in range(1000)]
    samples[9] = np.ones((4, 9), np.float32)
    with Lanes(session, threads) as lanes:
        given = sum(lanes.put({"x": x}) for x in samples)
        with pytest.raises(NativeLibraryError, match="by 7"):
            lanes.finish()
    assert lanes.done == 5 and given < 20
    with lanes:  # another time all is well
        assert lanes.done == 5
        lanes.put({"x": batch(10)})
    assert lanes.done == 1


def test_lanes_that_are_left_early_end_what_was_put() -> None:
    session = tapped()
    with pytest.raises(KeyboardInterrupt), Lanes(session, 3) as lanes:
        for at in range(10):
            lanes.put({"x": batch(1000, at)})
        del session
        raise KeyboardInterrupt
    assert lanes.done == state().batches == 10
    dropped = Lanes(tapped(), 2)
    for at in range(3):
        dropped.put({"x": batch(1000, at)})
    del dropped
    assert state().batches == 13


def test_inputs_of_every_shape_and_type_arrive_as_they_are() -> None:
    float32, types = TensorProto.FLOAT, {"h": TensorProto.FLOAT16, "i": TensorProto.INT64}
    types |= {"b": TensorProto.BOOL, "u": TensorProto.UINT8}
    nodes = [helper.make_node("Cast", [name], [f"{name}f"], to=float32) for name in types]
    nodes += [observe(f"{name}f", f"{KEY}/{name}") for name in types]
    nodes += [observe("x", f"{KEY}/x", kind="per_channel"), helper.make_node("Neg", ["x"], ["y"])]
    session = opened(model(nodes, **types, x=float32))
    feed = {
        "h": np.array([1.5, -2.5], np.float16),
        "i": np.array(70_000),
        "b": np.array([[True], [False]]),
        "u": np.arange(12, dtype=np.uint8).reshape(3, 4)[1:, ::2],
        "x": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    }
    with Lanes(session, 2) as lanes:
        for grown in range(3):  # the layout changes from sample to sample, and back
            assert lanes.put(feed | {"x": np.ones((4, 1 + grown), np.float32)})
            assert lanes.put(feed)
        lanes.finish()
    found = {
        name: (state(f"{KEY}/{name}").min_val, state(f"{KEY}/{name}").max_val) for name in types
    }
    assert found == {"h": (-2.5, 1.5), "i": (70_000, 70_000), "b": (0, 1), "u": (4, 10)}
    np.testing.assert_array_equal(state(f"{KEY}/x").channel_min, [0, 1, 1, 1])
    np.testing.assert_array_equal(state(f"{KEY}/x").channel_max, [8, 9, 10, 11])
    assert state(f"{KEY}/x").elements == 3 * 12 + 4 * (1 + 2 + 3)


def test_a_model_in_a_file_and_settings(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        observe("a"),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, x=TensorProto.FLOAT))
    session = opened(path, settings={"session.disable_prepacking": "1"}, optimize=False)
    with Lanes(session, 1) as lanes:
        lanes.put({"x": batch(5)})
    same(state(), direct(-batch(5), kind="minmax"))


def test_what_onnxruntime_does_not_take_is_said_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(NativeLibraryError, match="failed"):
        opened(b"no model")
    with pytest.raises(NativeLibraryError, match=r"nothing\.onnx"):
        opened(tmp_path / "nothing.onnx")
    session = tapped()
    with Lanes(session, 2) as lanes:
        lanes.put({"z": batch(5)})
        with pytest.raises(NativeLibraryError, match="z"):
            lanes.finish()


def test_how_many_values_were_not_finite() -> None:
    session = tapped()
    with Lanes(session, 2) as lanes:
        for bad in ([np.nan, 1.0], [np.inf, -np.inf], [1.0, 2.0]):
            lanes.put({"x": np.array(bad, np.float32)})
    assert OBSERVERS.nonfinite(KEY) == 3
    assert OBSERVERS.nonfinite(KEY + "/none") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_threads_stay_for_the_next_lanes() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    session, counts = tapped(), []
    for _ in range(20):
        with Lanes(session, 3) as lanes:
            for _ in range(6):
                lanes.put({"x": batch(500)})
        counts.append(threads())
    assert max(counts) <= counts[0] + 2


FORKED = f"""
import os, sys, time
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]}
import test_lanes as t

session = t.tapped()

def sixteen():
    with t.Lanes(session, 3) as lanes:
        for at in range(16):
            lanes.put({{"x": t.batch(500, at)}})
    assert lanes.done == 16

sixteen()
child = os.fork()
sixteen()
if child == 0:
    os._exit(0 if t.state().batches == 32 else 1)
end = time.monotonic() + 20
while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
    time.sleep(0.01)
assert found == (child, 0), found
"""


def test_a_forked_process_has_helpers_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)


def test_a_library_that_onnxruntime_has_not_loaded_says_so() -> None:
    code = (
        "from lucid_fx.native.lanes import LaneSession\n"
        "from lucid_fx.native.library import load\n"
        "LaneSession(load(), b'', 'y')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "onnxruntime has not loaded this library" in done.stderr
