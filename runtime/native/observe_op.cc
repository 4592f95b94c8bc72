#include "observe_op.h"

#include <memory>
#include <string>

#include "observe/registry.h"
#include "ort_kernel.h"

namespace lucid_fx {
namespace {

using observe::Config;
using observe::ElementType;
using observe::Tensor;

Config read_config(const ort::KernelInfo* info) {
  Config config;
  config.kind = observe::parse_kind(ort::string_attribute(info, "kind"));
  config.bins = ort::int_attribute(info, "bins", config.bins);
  config.ch_axis = ort::int_attribute(info, "ch_axis", config.ch_axis);
  config.averaging_constant =
      ort::float_attribute(info, "averaging_constant", config.averaging_constant);
  config.check();
  return config;
}

class ObserveKernel {
 public:
  ObserveKernel(const ort::KernelInfo* info, ElementType type)
      : type_(type),
        config_(read_config(info)),
        observer_(observe::acquire(ort::string_attribute(info, "key"))) {
    observer_->check(config_);
  }

  void compute(ort::KernelContext* context) const {
    const ort::TensorView x = ort::input(context, 0);
    const Tensor tensor{x.data, type_, x.dims.data(), x.dims.size(), x.size()};
    observer_->update(config_, {*kernels_, ort::SessionThreads(context)}, tensor);
    ort::output(context, {0});
  }

 private:
  const ElementType type_;
  const Config config_;
  const std::shared_ptr<observe::Observer> observer_;
  const observe::Kernels* const kernels_ = observe::find_kernels();
};

ort::Status* infer_shape(const ort::CustomOp*, ort::ShapeInferContext* context) {
  return ort::guarded([context] {
    const ort::TensorInfoPtr info = ort::new_tensor_info();
    const int64_t empty = 0;
    ort::check(ort::api().SetTensorElementType(info.get(), ort::kFloat32));
    ort::check(ort::api().SetDimensions(info.get(), &empty, 1));
    ort::check(ort::api().ShapeInferContext_SetOutputTypeShape(context, 0, info.get()));
  });
}

// onnxruntime reads an op through callbacks without closure; the element type is their closure.
template <ort::ElementType ort_type, ElementType type>
ort::CustomOp make_op() {
  using ort::CustomOp;
  using ort::KernelInfo;
  CustomOp op = ort::plain_op();
  op.GetName = [](const CustomOp*) { return "Observe"; };
  op.GetInputTypeCount = [](const CustomOp*) -> size_t { return 1; };
  op.GetInputType = [](const CustomOp*, size_t) -> int { return ort_type; };
  op.GetInputCharacteristic = [](const CustomOp*, size_t) -> int { return ort::kRequired; };
  op.GetOutputType = [](const CustomOp*, size_t) -> int { return ort::kFloat32; };
  op.InferOutputShapeFn = infer_shape;
  op.CreateKernelV2 = [](const CustomOp*, const void*, const KernelInfo* info, void** kernel) {
    return ort::guarded([&] { *kernel = new ObserveKernel(info, type); });
  };
  op.KernelComputeV2 = [](void* kernel, ort::KernelContext* context) {
    return ort::guarded([&] { static_cast<const ObserveKernel*>(kernel)->compute(context); });
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<ObserveKernel*>(kernel); };
  return op;
}

}  // namespace

OpList observe_ops() {
  static const ort::CustomOp ops[] = {
      make_op<ort::kFloat32, ElementType::kFloat32>(),
      make_op<ort::kFloat16, ElementType::kFloat16>(),
      make_op<ort::kFloat64, ElementType::kFloat64>(),
  };
  return {ops, sizeof ops / sizeof ops[0]};
}

}  // namespace lucid_fx
