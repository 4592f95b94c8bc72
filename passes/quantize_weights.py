"""Constant weights of matrix products on codes of a few bits; activations stay real."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.rewrite import remove, take_place
from lucid_fx.ir.walk import (
    ONNX_DOMAINS,
    attribute,
    constant,
    input_at,
    is_op,
    nodes,
    only_consumer,
)
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.weight_operands import Product, WeightOperands, product_node
from lucid_fx.passes.weight_sites import StoredWeight, WeightSite, find_site, shared_refusal
from lucid_fx.quantization.block import ScaleDtype
from lucid_fx.quantization.weight_only import (
    QuantizedMatrix,
    WeightConfig,
    WeightsOp,
    quantize_matrix,
)
from lucid_fx.quantization.weight_only.grids import matrix_scale

Quantizer = Callable[[StoredWeight, WeightConfig], QuantizedMatrix]
"""Chooses the codes of a weight; called when they are read, not when the pass runs."""


def quantize_stored(weight: StoredWeight, config: WeightConfig) -> QuantizedMatrix:
    """Codes by the method of ``config``, which must not need data."""
    return quantize_matrix(weight.read(), config)


@dataclass(frozen=True)
class QuantizeWeights(GraphPass):
    """Write products with weights on codes.

    ``t = MatMul (x, w); y = Add (t, b)`` → ``y = lucid_fx.MatMulInt4 (x, codes, scales, , b)`` or
    ``com.microsoft.MatMulNBits``, with the same weights; a weight that another node reads as it is,
    a small one, and any other op stays.

    Attributes:
        plan: node name → configuration, for the nodes to be quantized.
        op: the op to write.
        quantizer: chooses codes; its results are not kept.
    """

    plan: Mapping[str, WeightConfig] = field(default_factory=dict)
    op: WeightsOp = "matmulint4"
    quantizer: Quantizer = quantize_stored

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        operands = WeightOperands(model, self.op, self.quantizer, _factor)
        chosen, reasons = self.sites(model)
        for node in nodes(model):
            if reason := reasons.get(str(node.name)):
                ledger_of(model).record(node, "float", reason, self.name)
        for site in chosen:
            self._rewrite(model, operands, site)
        return bool(chosen)

    def _site(self, node: ir.Node) -> WeightSite | str:
        """The site of a planned node; else why it stays, nothing where others have spoken."""
        if not is_op(node, "MatMul", "Gemm"):
            return "it is no product with a weight" if node.domain in ONNX_DOMAINS else ""
        site = find_site(node)
        if isinstance(site, WeightSite) and node.name not in self.plan:
            return "the configuration leaves it in float"
        return site

    def sites(self, model: ir.Model) -> tuple[list[WeightSite], dict[str, str]]:
        """What the pass would rewrite, and by node the reason why another stays."""
        found = {str(node.name): self._site(node) for node in nodes(model)}
        able = {name: site for name, site in found.items() if isinstance(site, WeightSite)}
        reasons = {name: site for name, site in found.items() if isinstance(site, str) and site}
        chosen = []
        for name, site in able.items():
            alike = {n: s for n, s in able.items() if self.plan[n] == self.plan[name]}
            reason = shared_refusal(site, alike)
            if reason is None:
                chosen.append(site)
            else:
                reasons[name] = reason
        return chosen, reasons

    def _rewrite(
        self, model: ir.Model, operands: WeightOperands[StoredWeight], site: WeightSite
    ) -> None:
        node, (k, n) = site.node, site.weight.shape
        config = self.plan[str(node.name)]
        bias, rest, last = _bias(node, n)
        sources = tuple(dict.fromkeys((node, last)))
        emit = Emit(model, operands.names, last, self.name, sources)
        stored = operands.of(emit, site.weight, config, site.input)
        product = Product(site.input, k, n, config, stored, bias)
        output = product_node(emit, self.op, product, node.outputs[0])
        if rest is not None:
            like = node.outputs[0]
            output = emit.op("Add", [output, rest], like=like, dtype=like.dtype)
        for source in sources:
            ledger_of(model).record(source, "quantized", f"weights on {config}", self.name)
        take_place(last, [output])
        if last is not node:
            remove(node)


def _factor(weight: StoredWeight, config: WeightConfig) -> float:
    """The scale over a whole weight, which has to be known before the others are computed."""
    return matrix_scale(weight.read(), config) if config.scale is ScaleDtype.UE4M3 else 1.0


def _bias(node: ir.Node, n: int) -> tuple[NDArray[np.float32] | None, ir.Value | None, ir.Node]:
    """The bias ``[N]``, what else is added, and the last node that is taken in.

    That is Gemm's C, or an Add of a constant vector that is the only reader of a MatMul.
    """
    if is_op(node, "Gemm"):
        added = input_at(node, 2)
        array = constant(added)
        if array is None or array.size not in (1, n) or array.shape[-1:] not in ((), (array.size,)):
            return None, added, node
        real = array.astype(np.float32) * np.float32(attribute(node, "beta", 1.0))
        return np.ascontiguousarray(np.broadcast_to(real.reshape(-1), (n,))), None, node
    reader = only_consumer(node.outputs[0])
    if reader is not None and is_op(reader, "Add") and reader.graph is node.graph:
        array = constant(reader.inputs[1 if reader.inputs[0] is node.outputs[0] else 0])
        if array is not None and array.shape == (n,):
            return array.astype(np.float32), None, reader
    return None, None, node
