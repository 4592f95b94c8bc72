"""Laws of the block-scaled system, on whatever tensors hypothesis finds."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from native_build import native

import lucid_fx.quantization.block as b
from lucid_fx.native.block import NativeBlocks
from lucid_fx.quantization.block.engines import Definition
from lucid_fx.quantization.block.rounding import make_encoder
from lucid_fx.runtime.session import Session

UNIT = 2.0**-24
"""Half a unit in the last place of float32: what rounding moves a number by, relatively."""

LEAST = 2.0**-150
"""Half of the smallest float32: what rounding moves a number by where UNIT is too little."""

LIBRARY = native()
ISAS = LIBRARY.isas()
values = st.sampled_from(list(b.QuantValue))
integers = st.sampled_from([value for value in b.QuantValue if not value.is_float])
dtypes = st.sampled_from(list(b.ScaleDtype))
kinds = st.sampled_from(list(b.StoreKind))


def shapes(least=0, most=4):
    return hnp.array_shapes(min_dims=least, max_dims=most, min_side=1, max_side=9)


@st.composite
def stores(draw, shape):
    kind = draw(kinds)
    if kind is b.StoreKind.Native:
        return b.QuantStore.Native
    return b.QuantStore(kind, draw(st.integers(0, max(len(shape) - 1, 0))))


@st.composite
def schemes(draw, shape, value=values, levels=(0, 1, 2)):
    """A scheme whose scales can be computed, with blocks that need not divide the shape."""
    scheme = b.QuantScheme(draw(value), draw(stores(shape)))
    level = draw(st.sampled_from(levels))
    if level == 0:
        return scheme.per_tensor(draw(dtypes))
    rank = draw(st.integers(0, min(len(shape), 5)))
    block = draw(st.lists(st.integers(1, 6), min_size=rank, max_size=rank))
    if level == 1:
        return scheme.per_block(block, draw(dtypes))
    narrow = draw(st.sampled_from([b.ScaleDtype.F16, b.ScaleDtype.UE4M3]))
    return scheme.per_block(block, narrow).per_tensor(b.ScaleDtype.F32)


@st.composite
def codes_of(draw, value, shape):
    bits = value.size_bits
    if value.is_float:
        return draw(hnp.arrays(np.uint8, shape, elements=st.integers(0, 2**bits - 1)))
    half = 2 ** (bits - 1)
    return draw(hnp.arrays(np.int8, shape, elements=st.integers(-half, half - 1)))


reals = st.one_of(
    st.floats(-1e3, 1e3, width=32),
    st.floats(-(2.0**-100), 2.0**-100, width=32),
    st.sampled_from([0.0, -0.0, 0.5, -1.5, 8e37, -8e37, 2.0**-149]),
)


near_overflow = st.sampled_from([3e38, -3e38])


def tensors(shape, elements=reals):
    return hnp.arrays(np.float32, shape, elements=elements)


def fields_of(data, value, store, shape):
    """The stored fields of a tensor, read bit by bit: the specification, not the code."""
    bits, unit = value.size_bits, store.size_bits(value)
    unit_bits = -(-unit // 8) * 8  # a lone code of 4 or 2 bits takes a byte
    per_unit = store.num_quants(value)
    shape = tuple(shape) or (1,)
    axis = len(shape) - 1 - (store.dim or 0)
    swapped = list(shape)
    swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
    units_a_line = -(-swapped[-1] // per_unit)
    found = np.zeros(swapped, np.int64)
    for number, index in enumerate(np.ndindex(*swapped[:-1])):
        line = data[number * units_a_line * unit_bits // 8 :]
        for k in range(swapped[-1]):
            word = int.from_bytes(
                line[k // per_unit * unit_bits // 8 :][: unit_bits // 8].tobytes(), "little"
            )
            found[(*index, k)] = word >> (k % per_unit * bits) & (2**bits - 1)
    return np.swapaxes(found, axis, -1), math.prod(swapped[:-1]) * units_a_line * unit_bits // 8


@given(data=st.data(), value=values, shape=shapes())
def test_codes_come_back_and_lie_where_the_specification_says(data, value, shape):
    store = data.draw(stores(shape))
    codes = data.draw(codes_of(value, shape))
    packed = b.pack(codes, value, store)
    fields, size = fields_of(packed, value, store, shape)
    np.testing.assert_array_equal(fields.reshape(shape), codes.astype(int) % 2**value.size_bits)
    per_tensor = b.QuantScheme(value, store)
    assert packed.size == size == b.quantized_data_len(per_tensor, shape) - 4
    back = b.unpack(packed, shape, value, store)
    assert back.dtype == codes.dtype
    np.testing.assert_array_equal(back, codes)


@given(data=st.data(), value=integers, shape=shapes(least=1))
def test_bytes_give_back_codes_and_scales(data, value, shape):
    scheme = data.draw(schemes(shape, st.just(value)))
    codes = data.draw(codes_of(value, shape))
    grid = b.params_shape(shape, scheme)
    positive = hnp.arrays(np.float32, grid, elements=st.floats(2.0**-6, 400, width=32))
    scales = b.scale_to_dtype(data.draw(positive), scheme.scale_dtype())
    above = np.float32(0.3) if scheme.num_levels() == 2 else None
    stored = b.QuantizedBytes.new(codes, shape, scheme, scales, above)
    assert stored.bytes.size == b.quantized_data_len(scheme, shape)
    found, decoded = stored.into_vec_i8()
    np.testing.assert_array_equal(found, codes.ravel())
    np.testing.assert_array_equal(decoded.block, scales.ravel())
    assert decoded.global_scale == above
    assert b.QuantizedBytes.of(stored.to_tensor()) == stored
    assert b.from_safetensors(*b.to_safetensors({"w": stored})) == {"w": stored}
    assert b.from_onnx(ir.from_proto(ir.to_proto(b.to_onnx(stored, "w")))) == stored


@given(data=st.data(), shape=shapes(), value=integers)
def test_a_value_that_does_not_saturate_moves_by_half_a_step_at_most(data, shape, value):
    """In steps of the effective scale s, with k = x / s exactly.

    The quotient is rounded once: it is off by UNIT·|k| (or LEAST), so the code c is within 1/2 plus
    that of k. The product s·c is rounded once more: off by UNIT·s·|c|, |c| ≤ |k| + 1, or LEAST.
    Where the effective scale underflows to zero, every value becomes zero. Values stay below
    2**127, so that the product of the lowest code, which may lie beyond them, does not overflow.
    """
    scheme = data.draw(schemes(shape, st.just(value)))
    x = data.draw(tensors(shape))
    tensor = b.quantize(x, scheme)
    layout = b.BlockLayout(shape or (1,), scheme.block_size() or b.BlockSize())
    size = math.prod(shape)
    block = [layout.block_of(i) for i in range(size)] if scheme.block else [0] * size
    step = tensor.effective_scales().astype(np.float64).ravel()[block]
    real, back = (np.ravel(v).astype(np.float64) for v in (x, b.dequantize(tensor)))
    low, high = value.range
    inside = (real >= (low - 0.5) * step) & (real <= (high + 0.5) * step) & (step > 0)
    bound = step / 2 + UNIT * (2 * np.abs(real) + 2 * step) + 2 * LEAST
    assert (np.abs(back - real) <= bound)[inside].all()
    assert (back[step == 0] == 0).all()
    # what does saturate is at the end it went beyond
    codes = tensor.codes().ravel().astype(np.float64)
    assert (codes[(real > (high + 1) * step) & (step > 0)] == high).all()
    assert (codes[(real < (low - 1) * step) & (step > 0)] == low).all()


@given(scales=hnp.arrays(np.float32, 8, elements=st.floats(0, 2.0**127, width=32)), dtype=dtypes)
def test_scales_round_up_to_the_next_number_of_their_dtype(scales, dtype):
    up = b.scale_to_dtype(scales, dtype)
    limit = dtype.max_representable
    assert (up[scales <= limit] >= scales[scales <= limit]).all()
    assert (up[scales > limit] == limit).all()
    np.testing.assert_array_equal(b.decode_scales(b.encode_scales(up, dtype), dtype), up)
    np.testing.assert_array_equal(b.scale_to_dtype(up, dtype), up)
    # nothing lies between: half a step lower rounds up to the same number
    below = ((scales.astype(np.float64) + up) / 2).astype(np.float32)
    checked = (below > scales) & (scales <= limit) & (scales > 0)
    np.testing.assert_array_equal(b.scale_to_dtype(below, dtype)[checked], up[checked])


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60)
@given(data=st.data(), value=values, shape=shapes(least=1), threads=st.integers(1, 4))
def test_native_tiles_are_those_of_numpy_bit_for_bit(isa, data, value, shape, threads):
    both = NativeBlocks(LIBRARY, threads, isa), Definition()
    packing = b.Packing.of(value, data.draw(stores(shape)), shape)
    block = tuple(data.draw(st.lists(st.integers(1, 6), min_size=len(shape), max_size=len(shape))))
    grid = [-(-size // extent) for size, extent in zip(shape, block, strict=True)]
    x = data.draw(tensors(shape, st.one_of(reals, near_overflow)))
    steps = hnp.arrays(np.float32, grid, elements=st.sampled_from([0, 2.0**-149, 1e-3, 0.5, 7]))
    scales = data.draw(steps)
    rounding = data.draw(st.sampled_from(list(b.Rounding)))
    encoder = make_encoder(value, rounding, b.QuantMode.Symmetric, None)
    sign = 0 if value.is_float else value.size_bits
    results = []
    for engine in both:
        room = np.full(packing.nbytes + 1, 255, np.uint8)[1:]  # not aligned
        finite = engine.quantize(x, scales, block, packing, encoder, room)
        codes, back = np.empty(shape, np.uint8), np.empty(shape, np.float32)
        engine.unpack(room, packing, sign, codes)
        again = np.full_like(room, 255)
        engine.pack(codes, packing, again)
        engine.dequantize(room, scales, block, packing, value.table(), back)
        low, high, known = engine.extremes(x, block)
        results.append((finite, known, room, codes, again, back, low, high))
    assert results[0][:2] == results[1][:2] == (True, True)
    for mine, theirs in zip(results[0][2:], results[1][2:], strict=True):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("bits", [8, 4])
@settings(max_examples=40, deadline=None)
@given(data=st.data(), scale=st.sampled_from([1.0, 0.1, 3.7, 2.0**-20]))
def test_half_even_is_what_onnxruntime_does(bits, data, scale):
    """QuantizeLinear divides, rounds halves to even and saturates at the full range."""
    value = b.QuantValue.Q8F if bits == 8 else b.QuantValue.Q4F
    halves = st.integers(-600, 600).map(lambda n: np.float32(n / 2) * np.float32(scale))
    x = data.draw(hnp.arrays(np.float32, (3, 8), elements=st.one_of(halves, reals)))
    assume(np.isfinite(x).all())
    scheme = b.QuantScheme(value, b.QuantStore.Native)
    tensor = b.quantize(x, scheme, b.QParams([scale]), rounding="half_even")
    found = onnxruntime_codes(x, np.float32(scale), bits)
    np.testing.assert_array_equal(tensor.codes(), found)


def onnxruntime_codes(x, scale, bits):
    dtype = ir.DataType.INT8 if bits == 8 else ir.DataType.INT4
    given = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([3, 8]))
    one, step = (ir.tensor(np.float32(v), name=n) for v, n in ((1, "one"), (scale, "step")))
    constants = [
        ir.Value(name=t.name, const_value=t, type=ir.TensorType(t.dtype)) for t in (one, step)
    ]
    to = ir.node("QuantizeLinear", [given, constants[1]], {"output_dtype": int(dtype)})
    back = ir.node("DequantizeLinear", [to.outputs[0], constants[0]])
    back.outputs[0].name = "y"
    back.outputs[0].dtype = ir.DataType.FLOAT
    graph = ir.Graph(
        [given], back.outputs, nodes=[to, back], initializers=constants,
        opset_imports={"": 21}, name="g",
    )  # fmt: skip
    (codes,) = Session(ir.Model(graph, ir_version=10)).run({"x": x})
    return codes.astype(np.int64)
