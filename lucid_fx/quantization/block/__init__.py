"""Block-scaled quantization: schemes, scales, packed codes and their arithmetic.

Each block of a tensor has a scale, the real value of one code step; a second scale over the whole
tensor may multiply them. Source: the block-scaled specification.
"""

from lucid_fx.quantization.block.arithmetic import (
    QuantizedTensor,
    dequantize,
    lookup_dequantize,
    quantize,
    quantize_dynamic,
)
from lucid_fx.quantization.block.calibration import (
    Calibration,
    QParams,
    compute_q_params,
    compute_range,
)
from lucid_fx.quantization.block.files import load, save
from lucid_fx.quantization.block.interchange import (
    DequantizeLinearForm,
    from_onnx,
    from_safetensors,
    to_dequantize_linear,
    to_onnx,
    to_safetensors,
)
from lucid_fx.quantization.block.layout import BlockLayout, BlockSize
from lucid_fx.quantization.block.packing import (
    Packing,
    pack,
    pack_e2m1x2,
    pack_i8s_to_u32s,
    pack_words,
    unpack,
    unpack_words,
)
from lucid_fx.quantization.block.propagation import (
    argmax,
    argmin,
    move,
    permute,
    propagate,
    swap_dims,
    ternary_matmul,
)
from lucid_fx.quantization.block.quantizer import Quantizer
from lucid_fx.quantization.block.rounding import Rounding
from lucid_fx.quantization.block.scales import (
    QPARAM_ALIGN,
    ScaleDtype,
    decode_scales,
    encode_scales,
    scale_size,
    scale_to_dtype,
)
from lucid_fx.quantization.block.scheme import (
    BlockScale,
    QuantConfig,
    QuantScheme,
    global_scale_dtype,
    global_scale_size,
    mxfp4,
    nvfp4,
    params_shape,
    quantizable,
)
from lucid_fx.quantization.block.storage import (
    DecodedScales,
    ParamMetadata,
    QParamTensor,
    QuantizedBytes,
    param_tensors,
    quantized_data_len,
)
from lucid_fx.quantization.block.values import (
    QuantAcc,
    QuantMode,
    QuantPropagation,
    QuantStore,
    QuantValue,
    StoreKind,
)

__all__ = [
    "QPARAM_ALIGN",
    "BlockLayout",
    "BlockScale",
    "BlockSize",
    "Calibration",
    "DecodedScales",
    "DequantizeLinearForm",
    "Packing",
    "ParamMetadata",
    "QParamTensor",
    "QParams",
    "QuantAcc",
    "QuantConfig",
    "QuantMode",
    "QuantPropagation",
    "QuantScheme",
    "QuantStore",
    "QuantValue",
    "QuantizedBytes",
    "QuantizedTensor",
    "Quantizer",
    "Rounding",
    "ScaleDtype",
    "StoreKind",
    "argmax",
    "argmin",
    "compute_q_params",
    "compute_range",
    "decode_scales",
    "dequantize",
    "encode_scales",
    "from_onnx",
    "from_safetensors",
    "global_scale_dtype",
    "global_scale_size",
    "load",
    "lookup_dequantize",
    "move",
    "mxfp4",
    "nvfp4",
    "pack",
    "pack_e2m1x2",
    "pack_i8s_to_u32s",
    "pack_words",
    "param_tensors",
    "params_shape",
    "permute",
    "propagate",
    "quantizable",
    "quantize",
    "quantize_dynamic",
    "quantized_data_len",
    "save",
    "scale_size",
    "scale_to_dtype",
    "swap_dims",
    "ternary_matmul",
    "to_dequantize_linear",
    "to_onnx",
    "to_safetensors",
    "unpack",
    "unpack_words",
]
