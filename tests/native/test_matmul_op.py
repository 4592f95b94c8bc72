"""The op ``lucid_fx.MatMulInt4`` inside onnxruntime sessions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from native_build import native
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from lucid_fx.native.matmul import PANEL, NativeMatMul

LIBRARY = native()
MATMUL = NativeMatMul(LIBRARY)
K, N, BLOCK = 70, 21, 32
PANELS, BLOCKS = 2, 3
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 16, (K, N), dtype=np.uint8)
PACKED = MATMUL.pack(CODES, BLOCK, 4)
SCALES = RNG.uniform(0.01, 0.02, (PANELS, BLOCKS, PANEL)).astype(np.float32)
ZEROS = RNG.integers(0, 16, SCALES.shape, dtype=np.uint8)
BIAS = RNG.standard_normal(N).astype(np.float32)
A = RNG.standard_normal((4, K)).astype(np.float32)


def model(
    operands: dict[str, NDArray[Any] | None],
    shape: list[Any],
    dtype: int = TensorProto.FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    """Y = MatMulInt4(A, operands…); a None operand is left out."""
    attributes = {"K": K, "N": N, "block_size": BLOCK, "value": "Q4F", "layout": 1} | attributes
    names = [name if array is not None else "" for name, array in operands.items()]
    node = helper.make_node(
        "MatMulInt4", ["A", *names], ["Y"], name="proj", domain="lucid_fx", **attributes
    )
    graph = helper.make_graph(
        [node, helper.make_node("Identity", ["Y"], ["Z"])],
        "g",
        [helper.make_tensor_value_info("A", dtype, shape)],
        [helper.make_tensor_value_info("Z", dtype, None)],
        [numpy_helper.from_array(x, name) for name, x in operands.items() if x is not None],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("lucid_fx", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(proto: onnx.ModelProto | Path, threads: int = 1) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.register_custom_ops_library(str(LIBRARY.path))
    source = str(proto) if isinstance(proto, Path) else proto.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def signed(**changes: Any) -> dict[str, NDArray[Any] | None]:
    return {"codes": PACKED, "scales": SCALES} | changes


def direct(a: NDArray[np.float32], **options: Any) -> NDArray[np.float32]:
    return MATMUL.multiply(a, PACKED, SCALES, **({"n": N, "block": BLOCK, "bits": 4} | options))


@pytest.mark.parametrize("compute", ["int8", "float32"])
@pytest.mark.parametrize("threads", [1, 2])
def test_leading_dimensions_of_every_kind(compute: str, threads: int) -> None:
    s = session(model(signed(), ["B", "T", K], compute=compute), threads)
    assert s.get_outputs()[0].shape == ["B", "T", N]
    for lead in [(1, 1), (2, 3), (0, 3), (1, 100)]:
        a = RNG.standard_normal((*lead, K)).astype(np.float32)
        (y,) = s.run(None, {"A": a})
        wanted = direct(a.reshape(-1, K), compute=compute)
        np.testing.assert_array_equal(y, wanted.reshape(*lead, N))


def test_a_vector_is_a_matrix_of_one_row() -> None:
    s = session(model(signed(), [K]))
    assert s.get_outputs()[0].shape == [N]
    np.testing.assert_array_equal(s.run(None, {"A": A[0]})[0], direct(A[:1])[0])


def test_zero_points_and_bias() -> None:
    unsigned = signed(zero_points=ZEROS, bias=BIAS)
    (y,) = session(model(unsigned, ["M", K], value="U4")).run(None, {"A": A})
    np.testing.assert_array_equal(y, direct(A, zeros=ZEROS, bias=BIAS))
    (y,) = session(model(signed(zero_points=None, bias=BIAS), ["M", K])).run(None, {"A": A})
    np.testing.assert_array_equal(y, direct(A, bias=BIAS))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_scales_of_half_width(dtype: type) -> None:
    scales = SCALES.astype(dtype)
    (y,) = session(model(signed(scales=scales), ["M", K])).run(None, {"A": A})
    np.testing.assert_array_equal(y, MATMUL.multiply(A, PACKED, scales, n=N, block=BLOCK, bits=4))


def test_small_float_scales_under_a_global_one() -> None:
    scales = RNG.integers(1, 120, SCALES.shape, dtype=np.uint8)
    (y,) = session(model(signed(scales=scales), ["M", K], global_scale=0.01)).run(None, {"A": A})
    wanted = MATMUL.multiply(A, PACKED, scales, n=N, block=BLOCK, bits=4, global_scale=0.01)
    np.testing.assert_array_equal(y, wanted)


def test_half_precision_in_and_out() -> None:
    a = np.concatenate([A, A * 1e-6, A * 1e4]).astype(np.float16)
    (y,) = session(model(signed(), ["M", K], TensorProto.FLOAT16)).run(None, {"A": a})
    with np.errstate(over="ignore"):
        wanted = direct(a.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(y.view(np.uint16), wanted.view(np.uint16))


def test_every_half_survives_the_way_in_and_out() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 1)
    identity = {
        "codes": MATMUL.pack(np.full((1, 1), 9, np.uint8), 16, 4),
        "scales": np.ones((1, 1, PANEL), np.float32),
    }
    options = {"K": 1, "N": 1, "block_size": 16, "compute": "float32"}
    proto = model(identity, ["M", 1], TensorProto.FLOAT16, **options)
    (y,) = session(proto).run(None, {"A": every})
    np.testing.assert_array_equal(y, every)  # NaN to NaN, infinities too


REFUSED = {
    "a truncated tensor": (signed(codes=PACKED[:1]), {}, r"codes 'codes' has shape \[1, 768\]"),
    "a shorter panel": (signed(codes=PACKED[:, :-1]), {}, r"expected \[2, 768\]"),
    "scales of other blocks": (signed(scales=SCALES[:, :2]), {}, r"scales 'scales' has shape"),
    "scales of another type": (
        signed(scales=SCALES.astype(np.float64)), {}, "scales must be float32, float16",
    ),
    "zero points of signed values": (
        signed(zero_points=ZEROS), {}, "signed values have no zero_points",
    ),
    "no zero points": (signed(), {"value": "U4"}, "unsigned values need zero_points"),
    "a short bias": (signed(zero_points=None, bias=BIAS[:5]), {}, r"bias 'bias' has shape \[5\]"),
    "a layout to come": (signed(), {"layout": 2}, "layout 2, but this library reads layout 1"),
    "an unknown value": (signed(), {"value": "Q5F"}, "value must be one of Q2F"),
    "an unknown compute": (signed(), {"compute": "fp8"}, "compute must be int8 or float32"),
    "an odd block": (signed(), {"block_size": 24}, "block_size must be 16, 32"),
    "no columns": (signed(), {"N": 0}, "K and N must be between 1 and"),
    "a size that no memory holds": (signed(), {"K": 1 << 40}, "K and N must be between 1 and"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_at_session_creation(case: str) -> None:
    operands, attributes, text = REFUSED[case]
    with pytest.raises(Exception, match=rf"node 'proj' \(lucid_fx.MatMulInt4\): .*{text}"):
        session(model(operands, ["M", K], **attributes))


def test_computed_operands_are_checked_when_they_come() -> None:
    proto = model(signed(), ["M", K])
    packed = next(i for i in proto.graph.initializer if i.name == "codes")
    proto.graph.initializer.remove(packed)
    proto.graph.input.append(
        helper.make_tensor_value_info("codes", TensorProto.UINT8, ["P", "bytes"])
    )
    s = session(proto)
    np.testing.assert_array_equal(s.run(None, {"A": A, "codes": PACKED})[0], direct(A))
    with pytest.raises(Exception, match=r"codes has shape \[2, 767\], expected \[2, 768\]"):
        s.run(None, {"A": A, "codes": np.ascontiguousarray(PACKED[:, 1:])})


def test_a_of_another_width_is_refused() -> None:
    s = session(model(signed(), ["M", "K"]))
    with pytest.raises(Exception, match="its last axis must be K = 70"):
        s.run(None, {"A": A[:, :-1]})


def test_sessions_and_threads_at_the_same_time() -> None:
    sessions = [session(model(signed(), ["M", K]), threads) for threads in (1, 2, 2)]
    batches = [RNG.standard_normal((m, K)).astype(np.float32) for m in (1, 5, 8, 33)]
    wanted = [direct(a) for a in batches]

    def work(i: int) -> bool:
        y = sessions[i % 3].run(None, {"A": batches[i % 4]})[0]
        return bool((y == wanted[i % 4]).all())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(300)))


def test_external_weights_are_used_where_they_lie(tmp_path: Path) -> None:
    k, n = 4096, 8192
    packed = np.full((n // PANEL, k * PANEL // 2), 0x99, np.uint8)  # every weight is 1
    scales = np.full((n // PANEL, k // 128, PANEL), 0.5, np.float16)
    proto = model({"codes": packed, "scales": scales}, ["M", k], K=k, N=n, block_size=128)
    path = tmp_path / "big.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="big.data", size_threshold=1024)
    before = resident_bytes()
    s = session(path)
    opened = resident_bytes() - before
    (y,) = s.run(None, {"A": np.ones((1, k), np.float32)})
    np.testing.assert_array_equal(y, np.full((1, n), k / 2, np.float32))
    assert opened < packed.nbytes / 2  # the pages come when they are read


def resident_bytes() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("this system does not tell the resident memory")
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024
