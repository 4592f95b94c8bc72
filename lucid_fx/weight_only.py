"""quantize_weights: matrix products on weights of a few bits, without calibration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import onnx_ir as ir

from lucid_fx.errors import CalibrationError, ConfigError, DataError, LucidFxWarning
from lucid_fx.feeds import Feed
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.walk import is_op, nodes
from lucid_fx.layer_inputs import gram_matrices
from lucid_fx.mapping import check_mapping, recipes_by_node
from lucid_fx.native.library import load
from lucid_fx.passes.adopt_matmul_nbits import AdoptMatMulNbits
from lucid_fx.passes.eliminate_dead import EliminateDead
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.passes.quantize_weights import QuantizeWeights, quantize_stored
from lucid_fx.passes.weight_sites import StoredWeight, WeightSite
from lucid_fx.quantization import QConfigMapping
from lucid_fx.quantization.block import QuantScheme
from lucid_fx.quantization.weight_only import (
    Compute,
    Method,
    QuantizedMatrix,
    WeightConfig,
    WeightsOp,
    refine,
    solve,
)
from lucid_fx.tracing import trace

Op = Literal["auto", "matmulint4", "matmulnbits"]
Progress = Callable[[int, int | None], None]
"""Called after each weight with the number done and the number in all."""


def quantize_weights(
    model: Any,
    scheme: str | QuantScheme | WeightConfig = "int4",
    *,
    block_size: int | None = None,
    method: Method | None = None,
    zero_points: bool | None = None,
    compute: Compute | None = None,
    op: Op = "auto",
    qconfig_mapping: QConfigMapping[WeightConfig] | None = None,
    data: Iterable[Any] | None = None,
    progress: Progress | None = None,
) -> GraphModule:
    """Put the constant weights of MatMul and Gemm on codes of 2, 4 or 8 bits.

    Activations stay real. But for GPTQ, codes are chosen when they are read, that is when the
    result runs or is saved, one weight at a time; until then the file of the model must stay.

    Args:
        model: anything that `trace` takes.
        scheme: ``"int2"``, ``"int4"``, ``"int8"``, with zero points ``"uint2"``, ``"uint4"``,
            ``"uint8"``; a block-scaled scheme, or a `WeightConfig`.
        block_size, method, zero_points, compute: win over those of ``scheme``; see `WeightConfig`.
        op: ``"matmulint4"`` (fastest, needs the native library to run), ``"matmulnbits"`` (any
            onnxruntime; the same weights), or ``"auto"`` for the first where the library is there.
        qconfig_mapping: a `WeightConfig` or None (float) by node, scope or op type; what it leaves
            open has ``scheme``.
        data: samples for GPTQ, see `calibrate`; run once for each group of layers.
        progress: called after each weight.

    Raises:
        ConfigError: what no kernel takes, or a name in the mapping that matches nothing.
        DataError: GPTQ without samples, or one that does not fit.
        ModelError: NaN or infinite weights (named when they are read).
    """
    config = _config(scheme, block_size, method, zero_points, compute)
    chosen_op = _op(op)
    module = trace(model, mapped=True)
    mapping = qconfig_mapping or QConfigMapping[WeightConfig]()
    check_mapping(mapping, module.model, WeightConfig)
    plan = _plan(module.model, mapping, config)
    samples = _samples(module, plan, data)
    _Quantization(module.model, plan, chosen_op, samples, progress).run()
    return module


def adopt_matmul_nbits(model: Any, *, compute: Compute | None = None) -> GraphModule:
    """Repack products whose weights are on codes already for MatMulInt4; the weights stay the same.

    Args:
        model: anything that `trace` takes; holds MatMulNBits, or DequantizeLinear before MatMul.
        compute: how the products run; None for what the model says, see `AdoptMatMulNbits`.

    Raises:
        ConfigError: the native library is not installed.
    """
    if load() is None:
        raise ConfigError(
            "MatMulInt4 is an op of the native library, which is not installed",
            hint="the model runs as it is",
        )
    module = trace(model, allow_quantized=True, mapped=True)
    run_pipeline(module.model, (AdoptMatMulNbits(compute), EliminateDead()))
    return module


def _config(
    scheme: str | QuantScheme | WeightConfig,
    block_size: int | None,
    method: Method | None,
    zero_points: bool | None,
    compute: Compute | None,
) -> WeightConfig:
    try:
        return WeightConfig.parse(
            scheme, block_size=block_size, method=method, zero_points=zero_points, compute=compute
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _op(op: Op) -> WeightsOp:
    if op not in ("auto", "matmulint4", "matmulnbits"):
        raise ConfigError(
            f"there is no op {op!r}", hint="known are auto, matmulint4 and matmulnbits"
        )
    if op == "matmulnbits":
        return op
    if load() is not None:
        return "matmulint4"
    if op == "matmulint4":
        raise ConfigError(
            "MatMulInt4 is an op of the native library, which is not installed",
            hint="use matmulnbits, which holds the same weights",
        )
    warnings.warn(
        "lucid_fx runs without its native library: weights are written for onnxruntime's own"
        " MatMulNBits, which is slower",
        LucidFxWarning,
        stacklevel=3,
    )
    return "matmulnbits"


def _plan(
    model: ir.Model, mapping: QConfigMapping[WeightConfig], default: WeightConfig
) -> dict[str, WeightConfig]:  # fmt: skip
    """Node name → configuration, of the products that are to be quantized."""
    whole = QConfigMapping[WeightConfig]().set_global(mapping.global_qconfig or default)
    whole.object_types, whole.module_names = mapping.object_types, mapping.module_names
    recipes = recipes_by_node(model, whole)
    products = [str(node.name) for node in nodes(model) if is_op(node, "MatMul", "Gemm")]
    return {name: recipe for name in products if (recipe := recipes[name]) is not None}


def _samples(
    module: GraphModule, plan: dict[str, WeightConfig], data: Iterable[Any] | None
) -> list[Feed]:
    """The samples as feeds, where there is a method that looks at them."""
    if not any(config.method == "gptq" for config in plan.values()):
        return []
    feeds = []
    for number, sample in enumerate(data if data is not None else ()):
        try:
            feeds.append(module.feed(sample))
        except DataError as error:
            raise DataError(f"calibration sample {number}: {error}") from None
    if not feeds:
        raise DataError(
            "GPTQ chooses codes by the inputs of layers, and there are no samples",
            hint="give some dozens as data (--calib), or use the method hqq",
        )
    return feeds


class _Quantization:
    """One run: first what needs no data, then the layers of GPTQ in the order of the graph."""

    def __init__(
        self,
        model: ir.Model,
        plan: dict[str, WeightConfig],
        op: WeightsOp,
        samples: Sequence[Feed],
        progress: Progress | None,
    ) -> None:
        self.model, self.plan, self.op, self.samples = model, plan, op, samples
        self.progress, self.done = progress, 0
        sites, _ = QuantizeWeights(plan).sites(model)
        self.sites, self.total = sites, len({id(site.value) for site in sites})
        self.solved: dict[str, QuantizedMatrix] = {}

    def run(self) -> None:
        """Rewrite the model."""
        dataless = {name: c for name, c in self.plan.items() if c.method != "gptq"}
        self._write(dataless)
        by_data = [site for site in self.sites if str(site.node.name) not in dataless]
        for group in _groups(by_data):
            self._solve(group)
        self._write(self.plan)  # for the ledger's word on what stays
        if not self.total:
            warnings.warn(
                "no weight was quantized; the ledger says why", LucidFxWarning, stacklevel=4
            )

    def _write(self, plan: dict[str, WeightConfig]) -> None:
        run_pipeline(self.model, (QuantizeWeights(plan, self.op, self._quantize), EliminateDead()))

    def _quantize(self, weight: StoredWeight, config: WeightConfig) -> QuantizedMatrix:
        """The codes of a weight, when they are read."""
        matrix = self.solved.pop(weight.name, None) or quantize_stored(weight, config)
        self.done = min(self.done + 1, self.total)
        if self.progress is not None:
            self.progress(self.done, self.total)
        return matrix

    def _solve(self, group: list[WeightSite]) -> None:
        """Choose the codes of weights with the same inputs, and put them into the model."""
        columns = {str(site.input.name): site.weight.shape[0] for site in group}
        grams = gram_matrices(self.model, columns, self.samples)
        for site in group:
            if site.weight.name not in self.solved:
                inputs = [s.input.name for s in group if s.value is site.value]
                found = [grams[str(name)] for name in inputs if name in grams]
                self.solved[site.weight.name] = self._matrix(site, found)
        before = set(self.model.graph.initializers)
        self._write({str(site.node.name): self.plan[str(site.node.name)] for site in group})
        for name, value in self.model.graph.initializers.items():
            if name not in before and value.const_value is not None:
                value.const_value = ir.tensor(value.const_value.numpy(), name=name)

    def _matrix(self, site: WeightSite, grams: list[Any]) -> QuantizedMatrix:
        name, config = str(site.node.name), self.plan[str(site.node.name)]
        ledger, w = ledger_of(self.model), site.weight.read()
        if not grams:
            ledger.note(f"{name}: its inputs cannot be seen without the native library: hqq")
            return refine(w, config)
        try:
            matrix, notes = solve(w, sum(grams[1:], grams[0]), config)
        except ValueError as error:
            raise CalibrationError(str(error), node=name, tensor=site.weight.name) from error
        for note in notes:
            ledger.note(f"{name}: {note}")
        return matrix


def _groups(sites: list[WeightSite]) -> list[list[WeightSite]]:
    """Sites in the order of the graph; those whose weights have the same inputs together."""
    inputs: dict[int, list[int]] = {}
    for site in sites:
        inputs.setdefault(id(site.value), []).append(id(site.input))
    found: dict[frozenset[int], list[WeightSite]] = {}
    for site in sites:
        found.setdefault(frozenset(inputs[id(site.value)]), []).append(site)
    return list(found.values())
