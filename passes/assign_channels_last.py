"""placeholder"""
from dataclasses import dataclass
import onnx_ir as ir
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class AssignChannelsLast(GraphPass):
    """x"""
    def run(self, model: ir.Model) -> bool:
        return False
