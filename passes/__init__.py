"""The pipelines: every pass in order, with the reason why it stands there."""

from lucid_fx.passes.drop_initializer_inputs import DropInitializerInputs
from lucid_fx.passes.eliminate_dead import EliminateDead
from lucid_fx.passes.eliminate_identity import EliminateIdentity
from lucid_fx.passes.fold_constants import FoldConstants
from lucid_fx.passes.fuse_affine_into_readers import FuseAffineIntoReaders
from lucid_fx.passes.fuse_conv_affine import FuseConvAffine
from lucid_fx.passes.fuse_conv_batch_norm import FuseConvBatchNorm
from lucid_fx.passes.fuse_gelu import FuseGelu
from lucid_fx.passes.fuse_hard_swish import FuseHardSwish
from lucid_fx.passes.fuse_layer_norm import FuseLayerNorm
from lucid_fx.passes.fuse_matmul_add import FuseMatMulAdd
from lucid_fx.passes.fuse_pad_into_conv import FusePadIntoConv
from lucid_fx.passes.fuse_swish import FuseSwish
from lucid_fx.passes.inline_functions import InlineFunctions
from lucid_fx.passes.lift_constants import LiftConstants
from lucid_fx.passes.name_everything import NameEverything
from lucid_fx.passes.normalize_arithmetic import NormalizeArithmetic
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.unfold_batch_norm import UnfoldBatchNorm
from lucid_fx.passes.unroll_conv_transpose import UnrollConvTranspose
from lucid_fx.passes.use_global_average_pool import UseGlobalAveragePool
from lucid_fx.passes.widen_half import WidenHalf

IMPORT: tuple[GraphPass, ...] = (
    NameEverything(),  # first: the ledger, errors and the user's configuration go by names
    InlineFunctions(),  # all later passes look at one level of ops
    DropInitializerInputs(),  # weights must be constants before anything asks
    LiftConstants(),  # one home for all constants, bodies included
)
"""Puts a model into the form that all passes expect; changes no numbers."""

FLOAT: tuple[GraphPass, ...] = (
    WidenHalf(),  # before all: CPUs compute in float32, and integer kernels give float32
    FoldConstants(),  # the other patterns ask for constants
    EliminateIdentity(),  # so that producers and consumers are neighbours
    NormalizeArithmetic(),  # Sub and Div by constants become Add and Mul, which have kernels
    FuseLayerNorm(),  # normalisations and Gelu stay in float as one op each
    FuseGelu(),  # one op that has a kernel, for six that would round in between
    FusePadIntoConv(),  # before folds, which make new Conv nodes
    FuseMatMulAdd(),  # one rounding instead of two; before folds into Gemm
    UseGlobalAveragePool(),  # pooling has integer kernels, a reduction has none
    FuseSwish(),  # one reader of x in place of two
    FuseHardSwish(),  # before affine folds, which would break its pattern
    FuseConvBatchNorm(),  # a norm between Conv and Q keeps the Conv in float
    FuseConvAffine(),  # the same for learnt scales behind a Conv
    FuseAffineIntoReaders(),  # and for those in front of one
    UnfoldBatchNorm(),  # what had no Conv in front becomes Mul and Add
    UnrollConvTranspose(),  # after the folds, which know ConvTranspose: Conv has an integer kernel
    EliminateDead(),  # last: weights that the folds replaced
)
"""Simplifies the float graph; keeps its numbers up to rounding."""
