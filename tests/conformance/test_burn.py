"""The worked examples of the block-scaled specification: one small function for each op."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import numpy as np
import pytest
from examples import Function, Record, array, check, outcome, records

from lucid_fx.quantization import block
from lucid_fx.quantization.block import (
    BlockLayout,
    BlockSize,
    Calibration,
    QParams,
    QuantizedBytes,
    QuantPropagation,
    QuantScheme,
    QuantStore,
    QuantValue,
    ScaleDtype,
)

BURN = records("burn")


def number(value: Any) -> Any:
    """A number, or a list of them, with infinities and NaN spelt out."""
    return np.asarray(value, np.float64).astype(np.float32)


def scheme_of(record: Record) -> QuantScheme:
    return QuantScheme.from_json(record["input"]["scheme"])


def bits_of(values: Any) -> list[str]:
    return [f"{bits:08x}" for bits in np.asarray(values, np.float32).reshape(-1).view(np.uint32)]


def spelt(values: Any) -> list[Any]:
    """Numbers as JSON has them: those that are not finite are words."""
    return [v if np.isfinite(v) else str(v) for v in np.ravel(values).tolist()]


def optional(value: Any) -> float | None:
    return None if value is None else float(value)


def value_info(record: Record) -> dict[str, Any]:
    value = QuantValue(record["input"]["value"])
    names = ("size_bits", "range", "native_packing", "is_symmetric", "is_float")
    return {name: getattr(value, name) for name in names}


def store_info(record: Record) -> dict[str, Any]:
    scheme = scheme_of(record)
    return {
        "size_bits_stored": scheme.size_bits_stored(),
        "size_bits_value": scheme.size_bits_value(),
        "num_quants": scheme.num_quants(),
        "native_packing": scheme.value.native_packing,
        "packing_dim": scheme.packing_dim(),
    }


def block_size(record: Record) -> dict[str, Any]:
    size, params = BlockSize(record["input"]["values"]), record["params"]
    return {
        "canonical": list(size),
        "len": len(size),
        "num_elements": size.num_elements,
        "to_dim_vec": size.to_dim_vec(params["rank"]) if "rank" in params else None,
        "num_blocks": size.num_blocks(params["shape"]) if "shape" in params else None,
    }


def block_size_order(record: Record) -> dict[str, Any]:
    sizes = [BlockSize(values) for values in record["input"]["sizes"]]
    pairs = record["params"].get("equal_pairs", [])
    return {
        "sorted": [list(size) for size in sorted(sizes)],
        "equal": [sizes[a] == sizes[b] and hash(sizes[a]) == hash(sizes[b]) for a, b in pairs],
    }


def scheme_levels(record: Record) -> dict[str, Any]:
    scheme = scheme_of(record)
    tensor, size = scheme.tensor_scale(), scheme.block_size()
    above = block.global_scale_dtype(scheme)
    return {
        "tensor_scale": tensor and tensor.name,
        "block_size": None if size is None else list(size),
        "scale_dtype": scheme.scale_dtype().name,
        "num_levels": scheme.num_levels(),
        "global_scale_dtype": above and above.name,
        "global_scale_size": block.global_scale_size(scheme),
    }


def defaults(record: Record) -> dict[str, Any]:
    found = getattr(block, record["input"]["type"])
    if found is QuantStore:
        found = block.StoreKind
    if not isinstance(found, type):
        return {"value": found}
    if issubclass(found, enum.Enum):
        default = found.default().name if hasattr(found, "default") else None
        return {"variants": [each.name for each in found], "default": default}
    result = {"fields": [field.name for field in dataclasses.fields(found)]}
    if found is QuantScheme:
        explicit = QuantScheme().per_tensor(ScaleDtype.F32)
        result |= {"equals_explicit_per_tensor_f32": explicit == QuantScheme()}
        result |= QuantScheme().to_json()
    if found is block.QuantConfig:
        config = block.QuantConfig()
        result |= {"propagation": config.propagation.name}
        result |= {"scheme_is_default": config.scheme == QuantScheme()}
    return result


def scheme_permute(record: Record) -> dict[str, Any]:
    scheme, given = scheme_of(record), record["input"] | record["params"]
    if given["op"] == "permute":
        axes = given["axes"]
        moved = scheme.permute(len(axes), axes)
    elif given["op"] == "reshape":
        moved = scheme.reshape(given.get("rank", len(given.get("shape", ()))))
    else:
        pairs = (("dim0", "dim1"), ("d0", "d1"))
        named = (tuple(given[name] for name in pair) for pair in pairs if pair[0] in given)
        dims = given.get("axes") or given.get("dims") or next(named)
        size = scheme.block_size()
        least = max(*dims, len(size or ()) - 1) + 1
        rank = given.get("rank") or len(given.get("shape", ())) or least
        axes = list(range(rank))
        axes[dims[0]], axes[dims[1]] = axes[dims[1]], axes[dims[0]]
        moved = scheme.permute(rank, axes)
        assert moved.block == scheme.swap_block_dims(rank, *dims).block
    size = moved.block_size()
    return {"block": None if size is None else list(size), "store": moved.store.to_json()}


def params_shape(record: Record) -> dict[str, Any]:
    return {"shape": block.params_shape(record["input"]["shape"], scheme_of(record))}


def block_layout(record: Record) -> dict[str, Any]:
    layout = BlockLayout(record["input"]["shape"], BlockSize(record["input"]["block"]))
    size = int(np.prod(layout.shape))
    return {
        "num_blocks": layout.num_blocks(),
        "divides": layout.divides(),
        "block_of": [layout.block_of(index) for index in range(size)],
    }


def scale_info(record: Record) -> dict[str, Any]:
    dtype = ScaleDtype(record["input"]["dtype"])
    return {
        "scale_size": block.scale_size(dtype),
        "max_representable_f32_bits": bits_of(dtype.max_representable)[0],
    }


def quantizable(record: Record) -> dict[str, Any]:
    return {"quantizable": block.quantizable(scheme_of(record))}


def scale_to_dtype(record: Record) -> dict[str, Any]:
    given = record["input"]
    scales = number(given["scales"] if "scales" in given else given["scale"])
    values = block.scale_to_dtype(scales, ScaleDtype(record["params"]["dtype"]))
    return {"values": spelt(values), "f32_bits": bits_of(values)}


def encode_scales(record: Record) -> dict[str, Any]:
    dtype = ScaleDtype(record["params"]["dtype"])
    data = block.encode_scales(number(record["input"]["scales"]), dtype)
    return {"hex": data.hex(), "decoded": spelt(block.decode_scales(data, dtype))}


def pack_i8s_to_u32s(record: Record) -> dict[str, Any]:
    return {"words": block.pack_i8s_to_u32s(record["input"]["values"])}


def pack_words(record: Record) -> dict[str, Any]:
    words = block.pack_words(record["input"]["values"], QuantValue(record["input"]["value"]))
    return {"words": words, "words_hex": [f"{word:08x}" for word in words]}


def unpack_words(record: Record) -> dict[str, Any]:
    given = record["input"]
    value = QuantValue(given["value"])
    return {"values": block.unpack_words(given["words"], given["numel"], value)}


def quantized_bytes_new(record: Record) -> dict[str, Any]:
    given = record["input"]
    made = QuantizedBytes.new(
        given["values"],
        given["shape"],
        scheme_of(record),
        number(given["scales"]),
        given.get("global"),
    )
    return {"hex": made.bytes.tobytes().hex(), "len": made.bytes.size}


def quantized_bytes_decode(record: Record) -> dict[str, Any]:
    given = record["input"]
    data = np.frombuffer(bytes.fromhex(given["hex"]), np.uint8)
    values, scales = QuantizedBytes(data, scheme_of(record), given["shape"]).into_vec_i8()
    return {"values": values, "block": scales.block, "global": optional(scales.global_scale)}


def quantized_bytes_error(record: Record) -> dict[str, Any]:
    made = quantized_bytes_decode if "hex" in record["input"] else quantized_bytes_new
    return made(record)


def quantized_data_len(record: Record) -> dict[str, Any]:
    return {"bytes": block.quantized_data_len(scheme_of(record), record["input"]["shape"])}


def compute_range(record: Record) -> dict[str, Any]:
    calibration = Calibration(record["params"]["calibration"])
    strict = record["op"].endswith("_error")
    x = array(record["input"]["x"])
    low, high = block.compute_range(scheme_of(record), x, calibration, strict=strict)
    return {"min": low, "max": high}


def compute_q_params(record: Record) -> dict[str, Any]:
    low, high = array(record["input"]["min"]), array(record["input"]["max"])
    params = block.compute_q_params(scheme_of(record), low, high)
    return {"scales": params.scales, "global": optional(params.global_scale)}


def quantize(record: Record) -> dict[str, Any]:
    given, params = record["input"], None
    if given.get("scales") is not None:
        params = QParams(number(given["scales"]), given.get("global"))
    tensor = block.quantize(
        array(given["x"]),
        scheme_of(record),
        params,
        calibration=Calibration(record["params"]["calibration"] or "MinMax"),
        rounding=record["params"]["rounding"],
    )
    return {
        "codes": tensor.codes(),
        "scales": tensor.qparams.scales.ravel(),
        "global": optional(tensor.qparams.global_scale),
        "dequantized": block.dequantize(tensor),
    }


def pack_e2m1x2(record: Record) -> dict[str, Any]:
    return {"hex": block.pack_e2m1x2(number(record["input"]["values"])).hex()}


def lookup_dequantize(record: Record) -> dict[str, Any]:
    given = record["input"]
    table = number(given["table"])
    return {"x": block.lookup_dequantize(given["fields"], given["bits"], table, given["scale"])}


def propagation(record: Record) -> dict[str, Any]:
    given = record["input"]
    tensor = block.quantize(array(given["x"]), scheme_of(record))
    kind = QuantPropagation(record["params"]["propagation"])
    scalar = np.float32(given["add_scalar"])
    result = block.propagate(np.add, tensor, scalar, propagation=kind)
    if isinstance(result, np.ndarray):
        return {"kind": "float", "y": result}
    real = block.dequantize(result)
    scales = result.qparams.scales.ravel()
    return {"kind": "quantized", "codes": result.codes(), "scales": scales, "y": real}


def ternary_matmul(record: Record) -> dict[str, Any]:
    scheme = QuantScheme(QuantValue.Q2S, QuantStore.Native)
    calibration = Calibration(record["params"]["calibration"])
    weight = block.quantize(array(record["input"]["w"]), scheme, calibration=calibration)
    codes, scale = weight.codes(), float(weight.qparams.scales[0])
    return {
        "codes": codes,
        "scale": scale if codes.any() else None,  # unspecified for zeros
        "y": block.ternary_matmul(array(record["input"]["a"]), weight),
    }


FUNCTIONS: dict[str, Function] = {
    f"burn.{function.__name__}": function
    for function in (
        *(value_info, store_info, block_size, block_size_order, scheme_levels, defaults),
        *(scheme_permute, params_shape, block_layout, scale_info, quantizable, scale_to_dtype),
        *(encode_scales, pack_i8s_to_u32s, pack_words, unpack_words, quantized_bytes_new),
        *(quantized_bytes_decode, quantized_bytes_error, quantized_data_len, compute_range),
        *(compute_q_params, quantize, pack_e2m1x2, lookup_dequantize, propagation, ternary_matmul),
    )
} | {"burn.scale_to_dtype_error": scale_to_dtype, "burn.compute_range_error": compute_range}


def function_of(record: Record) -> Function:
    """The function of an op; an ``_error`` op without its own uses that of the same name."""
    op = record["op"]
    return FUNCTIONS.get(op) or FUNCTIONS[op.removesuffix("_error")]


@pytest.mark.parametrize("record", BURN, ids=lambda record: record["id"])
def test_example(record: Record) -> None:
    check(record, outcome(record, function_of(record)))


def test_every_op_has_a_function() -> None:
    assert BURN
    assert {record["op"].removesuffix("_error") for record in BURN} <= {
        op.removesuffix("_error") for op in FUNCTIONS
    }
