#include "matmul_op.h"

#include <memory>
#include <string>
#include <vector>

#include "matmul/product.h"

namespace lucid_fx {
namespace {

using matmul::Layout;
using matmul::Weights;

enum Operand : size_t { kA, kCodes, kScales, kZeroPoints, kBias, kOperands };

std::string text(const std::vector<int64_t>& dims) {
  std::string joined;
  for (const int64_t dim : dims) joined += (joined.empty() ? "" : ", ") + std::to_string(dim);
  return "[" + joined + "]";
}

// "Q4F" and its kin: their width, and whether zero points go with them.
struct ValueType {
  int64_t bits;
  bool zero_points;
};

ValueType parse_value(const std::string& name) {
  for (const char bits : {'2', '4', '8'}) {
    const std::string digit(1, bits);
    if (name == "Q" + digit + "F" || name == "Q" + digit + "S") return {bits - '0', false};
    if (name == "U" + digit) return {bits - '0', true};
  }
  throw InvalidArgument("value must be one of Q2F, Q2S, Q4F, Q4S, Q8F, Q8S, U2, U4, U8, got '" +
                        name + "'");
}

matmul::ScaleType scale_type(int element_type) {
  switch (element_type) {
    case ort::kFloat32:
      return matmul::ScaleType::kFloat32;
    case ort::kFloat16:
      return matmul::ScaleType::kFloat16;
    case ort::kBFloat16:
      return matmul::ScaleType::kBFloat16;
    case ort::kUint8:
      return matmul::ScaleType::kUE4M3;
    default:
      throw InvalidArgument("scales must be float32, float16, bfloat16 or uint8 (UE4M3)");
  }
}

class MatMulKernel {
 public:
  MatMulKernel(const ort::KernelInfo* info, bool half)
      : name_(ort::node_name(info)), half_(half), kernels_(*matmul::find_kernels()) {
    try {
      read_attributes(info);
      for (size_t i = kCodes; i < kOperands; ++i) {
        const ort::TensorView operand = ort::constant_input(info, i);
        names_[i] = operand.data != nullptr ? ort::input_name(info, i) : "";
        if (operand.data != nullptr) check_operand(i, operand);
      }
      if (ort::has_input(info, kZeroPoints) != value_.zero_points) {
        throw InvalidArgument(value_.zero_points ? "unsigned values need zero_points"
                                                 : "signed values have no zero_points");
      }
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("node '" + name_ + "' (lucid_fx.MatMulInt4): " + error.what());
    }
  }

  void compute(ort::KernelContext* context) const {
    try {
      run(context);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("node '" + name_ + "' (lucid_fx.MatMulInt4): " + error.what());
    }
  }

 private:
  void read_attributes(const ort::KernelInfo* info) {
    const int64_t version = ort::int_attribute(info, "layout");
    if (version != matmul::kLayoutVersion) {
      throw InvalidArgument("the weights have layout " + std::to_string(version) +
                            ", but this library reads layout " +
                            std::to_string(matmul::kLayoutVersion) +
                            "; quantize the model again, or update lucid_fx");
    }
    value_ = parse_value(ort::string_attribute(info, "value"));
    layout_ = matmul::make_layout(ort::int_attribute(info, "K"), ort::int_attribute(info, "N"),
                                  ort::int_attribute(info, "block_size"), value_.bits);
    compute_ = matmul::parse_compute(ort::string_attribute(info, "compute", "int8"));
    global_scale_ = ort::float_attribute(info, "global_scale", 1.0f);
  }

  // Every operand is exactly as large as the kernels read, or nothing is read.
  void check_operand(size_t index, const ort::TensorView& operand) const {
    const auto panels = static_cast<int64_t>(layout_.panels);
    const auto blocks = static_cast<int64_t>(layout_.blocks);
    const std::vector<int64_t> per_block{panels, blocks, matmul::kPanel};
    static const char* const kRoles[] = {"A", "codes", "scales", "zero_points", "bias"};
    const std::vector<int64_t> expected =
        index == kCodes  ? std::vector<int64_t>{panels, static_cast<int64_t>(layout_.panel_bytes)}
        : index == kBias ? std::vector<int64_t>{static_cast<int64_t>(layout_.n)}
                         : per_block;
    const std::string role =
        kRoles[index] + (names_[index].empty() ? "" : " '" + names_[index] + "'");
    if (operand.dims != expected) {
      throw InvalidArgument(role + " has shape " + text(operand.dims) + ", expected " +
                            text(expected));
    }
    if (index == kScales) {
      scale_type(operand.type);
    } else if (operand.type != (index == kBias ? ort::kFloat32 : ort::kUint8)) {
      throw InvalidArgument(role + (index == kBias ? " must be float32" : " must be uint8"));
    }
  }

  ort::TensorView operand(const ort::KernelContext* context, size_t index) const {
    const ort::TensorView found = ort::input(context, index);
    if (found.data != nullptr) check_operand(index, found);
    return found;
  }

  void run(ort::KernelContext* context) const {
    const ort::TensorView a = ort::input(context, kA);
    if (a.dims.empty() || a.dims.back() != static_cast<int64_t>(layout_.k)) {
      throw InvalidArgument("A has shape " + text(a.dims) +
                            ", but its last axis must be K = " + std::to_string(layout_.k));
    }
    const ort::TensorView scales = operand(context, kScales);
    const Weights weights{layout_,
                          static_cast<const uint8_t*>(operand(context, kCodes).data),
                          scales.data,
                          scale_type(scales.type),
                          global_scale_,
                          static_cast<const uint8_t*>(operand(context, kZeroPoints).data),
                          static_cast<const float*>(operand(context, kBias).data)};
    std::vector<int64_t> dims = a.dims;
    dims.back() = static_cast<int64_t>(layout_.n);
    void* y = ort::output(context, dims);
    multiply(weights, a.data, a.size() / layout_.k, y, ort::SessionThreads(context));
  }

  void multiply(const Weights& weights, const void* a, size_t m, void* y,
                const Parallel& parallel) const {
    if (!half_) {
      matmul::multiply(weights, compute_, kernels_, parallel, static_cast<const float*>(a), m,
                       static_cast<float*>(y));
      return;
    }
    std::vector<float> wide(m * layout_.k), result(m * layout_.n);
    kernels_.from_half(static_cast<const uint16_t*>(a), wide.size(), wide.data());
    matmul::multiply(weights, compute_, kernels_, parallel, wide.data(), m, result.data());
    kernels_.to_half(result.data(), result.size(), static_cast<uint16_t*>(y));
  }

  const std::string name_;
  const bool half_;
  const matmul::Kernels& kernels_;
  std::string names_[kOperands];  // of the constant operands
  ValueType value_{};
  Layout layout_{};
  matmul::Compute compute_ = matmul::Compute::kInt8;
  float global_scale_ = 1.0f;
};

// Y has the type of A, and its shape with N in place of K; names of symbolic dimensions stay.
// onnxruntime asks the first op of this name for all of them.
ort::Status* infer_shape(const ort::CustomOp*, ort::ShapeInferContext* context) {
  return ort::guarded([&] {
    const ort::Api& api = ort::api();
    ort::TensorInfo* a = nullptr;  // stays onnxruntime's
    ort::check(api.ShapeInferContext_GetInputTypeShape(context, kA, &a));
    size_t rank = 0;
    int type = ort::kUndefined;
    ort::check(api.GetTensorElementType(a, &type));
    ort::check(api.GetDimensionsCount(a, &rank));
    if (rank == 0) return;  // unknown
    std::vector<int64_t> dims(rank);
    std::vector<const char*> symbols(rank);
    ort::check(api.GetDimensions(a, dims.data(), rank));
    ort::check(api.GetSymbolicDimensions(a, symbols.data(), rank));
    const ort::Attribute* n = nullptr;
    ort::check(api.ShapeInferContext_GetAttribute(context, "N", &n));
    size_t read = 0;
    ort::check(api.ReadOpAttr(n, ort::kInt, &dims.back(), sizeof dims.back(), &read));
    symbols.back() = "";

    const ort::TensorInfoPtr y = ort::new_tensor_info();
    ort::check(api.SetTensorElementType(y.get(), type));
    ort::check(api.SetDimensions(y.get(), dims.data(), rank));
    ort::check(api.SetSymbolicDimensions(y.get(), symbols.data(), rank));
    ort::check(api.ShapeInferContext_SetOutputTypeShape(context, 0, y.get()));
  });
}

// onnxruntime reads an op through callbacks without closure; the element type is their closure.
template <ort::ElementType type>
ort::CustomOp make_op() {
  using ort::CustomOp;
  using ort::KernelInfo;
  CustomOp op = ort::plain_op();
  op.GetName = [](const CustomOp*) { return "MatMulInt4"; };
  op.GetInputTypeCount = [](const CustomOp*) -> size_t { return kOperands; };
  op.GetInputType = [](const CustomOp*, size_t index) -> int {
    return index == kA        ? type
           : index == kScales ? ort::kUndefined
           : index == kBias   ? ort::kFloat32
                              : ort::kUint8;
  };
  op.GetInputCharacteristic = [](const CustomOp*, size_t index) -> int {
    return index >= kZeroPoints ? ort::kOptional : ort::kRequired;
  };
  op.GetOutputType = [](const CustomOp*, size_t) -> int { return type; };
  op.InferOutputShapeFn = infer_shape;
  op.CreateKernelV2 = [](const CustomOp*, const void*, const KernelInfo* info, void** kernel) {
    return ort::guarded([&] { *kernel = new MatMulKernel(info, type == ort::kFloat16); });
  };
  op.KernelComputeV2 = [](void* kernel, ort::KernelContext* context) {
    return ort::guarded([&] { static_cast<const MatMulKernel*>(kernel)->compute(context); });
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<MatMulKernel*>(kernel); };
  return op;
}

}  // namespace

OpList matmul_ops() {
  static const ort::CustomOp ops[] = {make_op<ort::kFloat32>(), make_op<ort::kFloat16>()};
  return {ops, sizeof ops / sizeof ops[0]};
}

}  // namespace lucid_fx
