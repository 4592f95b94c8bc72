"""Laws of the affine system, on whatever numbers hypothesis finds."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lucid_fx.quantization as q
from lucid_fx.quantization.dtypes import NAMED
from lucid_fx.runtime.session import Session

UNIT = 2.0**-24
"""Half a unit in the last place of float32: what rounding moves a number by, relatively."""

KERNELS = [dtype for dtype in NAMED if dtype is not q.qint32]
"""What QuantizeLinear writes; int32 codes are only ever read."""

dtypes = st.sampled_from(NAMED)
schemes = st.sampled_from(list(q.QScheme))
finite = st.floats(-1e6, 1e6, width=32)
scales = st.floats(2.0**-20, 2.0**10, width=32)


def arrays(shape, elements=finite):
    return hnp.arrays(np.float32, shape, elements=elements)


@st.composite
def grids(draw, channels=None, which=dtypes):
    """A grid with one scale, or one for each channel along axis 1."""
    dtype = draw(which)
    shape = () if channels is None else (channels,)
    bound = min(2**20, dtype.quant_max)
    codes = st.integers(max(-(2**20), dtype.quant_min), bound)
    zero = draw(hnp.arrays(np.int64, shape, elements=codes))
    kind = q.per_tensor_affine if channels is None else q.per_channel_affine
    axis = None if channels is None else draw(st.sampled_from([1, -2]))
    return q.QParams(draw(arrays(shape, scales)), zero, kind, dtype, axis)


def along(grid, values):
    """Scale and zero point in float64, to broadcast over (N, C, L) values."""
    numbers = (grid.scale, grid.zero_point)
    return (n.astype(np.float64).reshape((-1, 1) if n.ndim else ()) for n in numbers)


@given(data=st.data(), channels=st.sampled_from([None, 3]))
def test_inside_the_grid_a_value_moves_by_half_a_step_at_most(data, channels):
    """With x = k·s: the quotient, and the product on the way back, are rounded once each.

    The rounded quotient is off by UNIT·|k| steps, which can move the tie by as much; the product is
    off by UNIT·|code - z|, and |code - z| ≤ |k| + 1/2 + UNIT·|k|. Adding the zero point is exact
    while codes and differences stay below 2**24, as they do here.
    """
    grid = data.draw(grids(channels, st.sampled_from(KERNELS)))
    x = data.draw(arrays((2, 3, 4)))
    step, zero = along(grid, x)
    codes = x / step  # float64
    inside = (codes >= grid.qdtype.quant_min - zero) & (codes <= grid.qdtype.quant_max - zero)
    back = q.dequantize(q.quantize(x, grid), grid).astype(np.float64)
    allowed = step * (0.5 + UNIT * (2 * np.abs(codes) + 1))
    assert (np.abs(x - back)[inside] <= allowed[inside]).all()


@given(data=st.data(), channels=st.sampled_from([None, 3]))
def test_outside_the_grid_a_value_takes_the_nearest_end(data, channels):
    grid = data.draw(grids(channels))
    x = data.draw(arrays((2, 3, 4), st.floats(width=32, allow_nan=False)))
    step, zero = along(grid, x)
    codes = q.quantize(x, grid).astype(np.int64)
    low, high = grid.qdtype.quant_min, grid.qdtype.quant_max
    assert ((low <= codes) & (codes <= high)).all()
    with np.errstate(over="ignore"):
        exact = x.astype(np.float64) / step + zero
    assert (codes[exact >= high + 1] == high).all()
    assert (codes[exact <= low - 1] == low).all()


@given(data=st.data(), channels=st.sampled_from([None, 3]))
def test_codes_come_back(data, channels):
    """Codes are fixed points, as far as float32 holds them and the product is not rounded away."""
    grid = data.draw(grids(channels, st.sampled_from(KERNELS)))
    codes = data.draw(
        hnp.arrays(np.int64, (2, 3, 4), elements=st.integers(*bounds_of(grid.qdtype)))
    )
    again = q.quantize(q.dequantize(codes, grid), grid)
    np.testing.assert_array_equal(again.astype(np.int64), codes)


def bounds_of(dtype):
    return dtype.quant_min, dtype.quant_max


def q_then_dq(grid: q.QParams) -> Session:
    """A model that quantizes on a grid and gives the codes as real numbers."""
    constants = q.qdq_constants(grid)
    plain = q.QParams(1, 0, q.per_tensor_affine, grid.qdtype)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 3, 4]))
    named = {
        "scale": constants.scale,
        "zero": constants.zero_point,
        "one": plain.scale,
        "none": plain.zero_point_codes(),
    }
    inputs = {}
    for name, array in named.items():
        tensor = ir.tensor(np.asarray(array), name=name)
        inputs[name] = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
    to = ir.node("QuantizeLinear", [x, inputs["scale"], inputs["zero"]], constants.attributes)
    back = ir.node("DequantizeLinear", [to.outputs[0], inputs["one"], inputs["none"]])
    back.outputs[0].name = "y"
    back.outputs[0].dtype = ir.DataType.FLOAT
    graph = ir.Graph(
        [x], back.outputs, nodes=[to, back], initializers=list(inputs.values()),
        opset_imports={"": 25}, name="g",
    )  # fmt: skip
    model = ir.Model(graph, ir_version=12)
    return Session(model)


@pytest.mark.parametrize("dtype", KERNELS, ids=lambda dtype: dtype.name)
@given(data=st.data(), channels=st.sampled_from([None, 3]))
def test_quantize_is_what_onnxruntime_does(dtype, data, channels):
    """Bit for bit, ties and saturation included; infinities are left to ourselves."""
    grid = data.draw(grids(channels, st.just(dtype)))
    ties = st.integers(-300, 300).map(lambda n: np.float32(n / 2))
    x = data.draw(arrays((2, 3, 4), st.one_of(finite, ties)))
    (codes,) = q_then_dq(grid).run({"x": x})
    np.testing.assert_array_equal(q.quantize(x, grid).astype(np.float32), codes)


@given(data=st.data(), channels=st.sampled_from([None, 3]))
def test_the_gradient_stops_where_a_change_of_x_changes_nothing(data, channels):
    """Against differences: a step of one code moves the result by one code, or saturates.

    Where the mask is 1, the value has a code; going one step down and up must then give results
    two steps apart, less what saturates at an end. Where it is 0, going one step further out
    gives the very same result.
    """
    grid = data.draw(grids(channels, st.sampled_from([q.quint8, q.qint8, q.qint4])))
    number = data.draw(hnp.arrays(np.int64, (2, 3, 4), elements=st.integers(-400, 400)))
    step, zero = along(grid, number)
    # a quarter off a code is far from ties
    x = ((number + data.draw(st.sampled_from([-0.25, 0.25]))) * step).astype(np.float32)
    mask = q.fake_quantize_backward(np.ones_like(x), x, grid)
    out = x + np.where(number + zero > grid.qdtype.quant_max, step, -step).astype(np.float32)
    here, there = q.fake_quantize(x, grid), q.fake_quantize(out, grid)
    assert (here == there)[mask == 0].all()
    code = number + zero
    inside = (code >= grid.qdtype.quant_min) & (code <= grid.qdtype.quant_max)
    np.testing.assert_array_equal(mask, inside.astype(np.float32))
    moved = (here.astype(np.float64) - there) / step
    strictly = inside & (code > grid.qdtype.quant_min)
    np.testing.assert_allclose(moved[strictly], 1, atol=1e-3)


@given(data=st.data(), channels=st.sampled_from([None, 3]))
def test_fake_quantize_is_there_and_back(data, channels):
    grid, x = data.draw(grids(channels, st.sampled_from(KERNELS))), data.draw(arrays((2, 3, 4)))
    expected = q.dequantize(q.quantize(x, grid), grid)
    np.testing.assert_array_equal(q.fake_quantize(x, grid), expected)


@given(low=arrays((3,)), high=arrays((3,)), scheme=schemes, dtype=dtypes)
def test_every_range_gives_a_grid_with_zero_on_it(low, high, scheme, dtype):
    scale, zero = q.calculate_qparams(low, high, scheme, dtype)
    assert (scale >= np.float32(1e-8)).all()
    assert (zero == np.rint(zero)).all()
    grid = q.QParams(scale, zero, scheme, dtype, 0)
    assert (q.dequantize(q.quantize(np.zeros(3, np.float32), grid), grid) == 0).all()


class TestMergingExtremes:
    OBSERVERS = (
        q.MinMaxObserver.with_args(),
        q.PerChannelMinMaxObserver.with_args(ch_axis=1),
    )
    made = st.sampled_from(OBSERVERS)
    batches = st.lists(arrays((2, 3)), max_size=6)

    @given(make=made, batches=batches, cut=st.integers(0, 6))
    def test_two_halves_are_the_whole(self, make, batches, cut):
        merged = fed(make, batches[:cut]).merge(fed(make, batches[cut:]))
        assert merged.state_dict() == fed(make, batches).state_dict()

    @given(make=made, a=batches, b=batches)
    def test_either_order(self, make, a, b):
        one, other = fed(make, a).merge(fed(make, b)), fed(make, b).merge(fed(make, a))
        assert one.state_dict() == other.state_dict()

    @given(make=made, a=batches, b=batches, c=batches)
    def test_any_brackets(self, make, a, b, c):
        left = fed(make, a).merge(fed(make, b)).merge(fed(make, c))
        right = fed(make, a).merge(fed(make, b).merge(fed(make, c)))
        assert left.state_dict() == right.state_dict()


class TestMergingHistograms:
    """The range is exact, the number of values too; where each lies, up to a bin of growth."""

    batches = st.lists(hnp.arrays(np.float32, st.integers(1, 9), elements=finite), max_size=4)

    @staticmethod
    def observed(batches):
        return fed(q.HistogramObserver.with_args(bins=32), batches)

    @given(a=batches, b=batches)
    def test_range_and_mass_are_those_of_all_data(self, a, b):
        merged, whole = self.observed(a).merge(self.observed(b)), self.observed(a + b)
        assert (merged.min_val, merged.max_val) == (whole.min_val, whole.max_val)
        assert merged.histogram.sum() == sum(batch.size for batch in a + b)
        assert (merged.histogram >= 0).all()

    @given(a=batches, b=batches)
    def test_either_order(self, a, b):
        one = self.observed(a).merge(self.observed(b))
        assert one.state_dict() == self.observed(b).merge(self.observed(a)).state_dict()

    @given(a=batches)
    def test_nothing_is_neutral(self, a):
        empty, some = self.observed([]), self.observed(a)
        assert self.observed(a).merge(empty).state_dict() == some.state_dict()
        assert empty.merge(some).state_dict() == some.state_dict()

    @given(a=batches, b=batches)
    def test_counts_move_by_less_than_a_bin_of_the_wider_range(self, a, b):
        """Growth puts a count where its old centre lies: off by half an old bin, and by a new one.

        So up to any new edge the merged counts hold no fewer values than lie a bin and a half
        below it, and no more than lie a bin and a half above it. The halves had grown as well.
        """
        merged = self.observed([*a[:1]]).merge(self.observed([*b[:1]]))
        values = np.concatenate([*a[:1], *b[:1], np.zeros(0, np.float32)]).astype(np.float64)
        low, high = float(merged.min_val), float(merged.max_val)
        if not high > low:
            return
        width = (high - low) / 32
        counted = np.cumsum(merged.histogram)
        edges = low + width * np.arange(1, 33)
        slack = 1.5 * width + 32 * UNIT * max(abs(low), abs(high))
        assert (counted >= [(values <= edge - slack).sum() for edge in edges]).all()
        assert (counted <= [(values <= edge + slack).sum() for edge in edges]).all()


def fed(make, batches):
    observer = make()
    for batch in batches:
        observer(batch)
    return observer


MAKERS = (
    q.MinMaxObserver.with_args(),
    q.MovingAverageMinMaxObserver.with_args(averaging_constant=0.3),
    q.PerChannelMinMaxObserver.with_args(ch_axis=1),
    q.MovingAveragePerChannelMinMaxObserver.with_args(ch_axis=-1),
    q.HistogramObserver.with_args(bins=16),
    q.FixedQParamsObserver.with_args(scale=0.1, zero_point=3),
    q.FakeQuantize.with_args(),
    q.FakeQuantize.with_args(observer=q.PerChannelMinMaxObserver, ch_axis=1),
)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.func.__name__)
@given(batches=st.lists(arrays((2, 3), st.floats(width=32, allow_nan=False, allow_infinity=False)),
                        max_size=3))  # fmt: skip
def test_a_state_goes_through_json_exactly(make, batches):
    observer, again = make(), make()
    if not isinstance(observer, q.FakeQuantize):
        observer = fed(make, batches)
    elif batches:
        observer(batches[0])
    text = json.dumps(observer.state_dict())
    again.load_state_dict(json.loads(text))
    assert json.dumps(again.state_dict()) == text  # as text, so that -0.0 and 0.0 differ
    for one, other in zip(*(o.calculate_qparams() for o in (observer, again)), strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 1e-45, -0.0])
def test_special_numbers_go_through_json(special):
    observer, again = q.MinMaxObserver(), q.MinMaxObserver()
    observer(np.array([special], np.float32))
    again.load_state_dict(json.loads(json.dumps(observer.state_dict())))
    assert again.min_val.tobytes() == observer.min_val.tobytes()
    assert again.max_val.tobytes() == observer.max_val.tobytes()


@given(grid=st.one_of(grids(), grids(3)))
def test_a_grid_goes_through_json(grid):
    again = q.QParams.from_json(grid.to_json())
    assert again == grid and hash(again) == hash(grid)


@given(
    grid=st.one_of(grids(), grids(3)), op=st.sampled_from(["QuantizeLinear", "DequantizeLinear"])
)
def test_a_grid_goes_through_a_node(grid, op):
    constants = q.qdq_constants(grid)
    inputs = [ir.Value(name="x")]
    for name, array in (("s", constants.scale), ("z", constants.zero_point)):
        inputs.append(ir.Value(name=name, const_value=ir.tensor(np.asarray(array), name=name)))
        inputs[-1].dtype = inputs[-1].const_value.dtype
    node = ir.node(op, inputs, constants.attributes)
    assert q.qparams_of_node(node, grid.qscheme) == grid
    guessed = q.qparams_of_node(node)
    assert guessed.qscheme.is_per_channel == grid.qscheme.is_per_channel
    assert q.QParams(guessed.scale, guessed.zero_point, grid.qscheme, guessed.qdtype,
                     guessed.ch_axis) == grid  # fmt: skip
