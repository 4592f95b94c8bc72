#include "observe_op.h"

#include <array>
#include <exception>
#include <memory>
#include <string>

#include "observe/registry.h"

namespace lucid_fx {
namespace {

using observe::Config;
using observe::ElementType;
using observe::Tensor;

const ort::Api* ort_api = nullptr;

// A failed call of onnxruntime. It owns the status until the kernel hands it back.
struct OrtError {
  ort::Status* status;
};

void check(ort::Status* status) {
  if (status != nullptr) throw OrtError{status};
}

// No exception may cross into onnxruntime: they end here, as a status.
template <class Body>
ort::Status* guarded(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const OrtError& error) {
    return error.status;
  } catch (const observe::InvalidArgument& error) {
    return ort_api->CreateStatus(ort::kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return ort_api->CreateStatus(ort::kRuntimeException, error.what());
  }
}

struct TensorInfoDeleter {
  void operator()(ort::TensorInfo* info) const { ort_api->ReleaseTensorTypeAndShapeInfo(info); }
};
using TensorInfo = std::unique_ptr<ort::TensorInfo, TensorInfoDeleter>;

// True when the node has the attribute; its default stays otherwise.
bool present(ort::Status* status) {
  if (status == nullptr) return true;
  ort_api->ReleaseStatus(status);
  return false;
}

std::string string_attribute(const ort::KernelInfo* info, const char* name) {
  size_t size = 0;  // with the terminating zero
  check(ort_api->KernelInfoGetAttribute_string(info, name, nullptr, &size));
  std::string value(size, '\0');
  check(ort_api->KernelInfoGetAttribute_string(info, name, value.data(), &size));
  value.resize(size == 0 ? 0 : size - 1);
  return value;
}

Config read_config(const ort::KernelInfo* info) {
  Config config;
  config.kind = observe::parse_kind(string_attribute(info, "kind"));
  present(ort_api->KernelInfoGetAttribute_int64(info, "bins", &config.bins));
  present(ort_api->KernelInfoGetAttribute_int64(info, "ch_axis", &config.ch_axis));
  present(ort_api->KernelInfoGetAttribute_float(info, "averaging_constant",
                                                &config.averaging_constant));
  config.check();
  return config;
}

// The session's own thread pool.
class SessionThreads final : public observe::Parallel {
 public:
  explicit SessionThreads(const ort::KernelContext* context) : context_(context) {}

  void run(size_t tasks, void (*task)(void*, size_t), void* argument) const override {
    check(ort_api->KernelContext_ParallelFor(context_, task, tasks, 0, argument));
  }

 private:
  const ort::KernelContext* context_;
};

class ObserveKernel {
 public:
  ObserveKernel(const ort::KernelInfo* info, ElementType type)
      : type_(type),
        config_(read_config(info)),
        observer_(observe::acquire(string_attribute(info, "key"))) {
    observer_->check(config_);
  }

  void compute(ort::KernelContext* context) const {
    const ort::Value* value = nullptr;
    check(ort_api->KernelContext_GetInput(context, 0, &value));
    ort::TensorInfo* raw = nullptr;
    check(ort_api->GetTensorTypeAndShape(value, &raw));
    const TensorInfo info(raw);

    size_t rank = 0;
    check(ort_api->GetDimensionsCount(raw, &rank));
    if (rank > kMaxRank) throw observe::InvalidArgument("Observe takes tensors of rank 16 at most");
    std::array<int64_t, kMaxRank> dims;
    check(ort_api->GetDimensions(raw, dims.data(), rank));
    Tensor x{nullptr, type_, dims.data(), rank, 1};
    for (size_t i = 0; i < rank; ++i) x.size *= static_cast<size_t>(dims[i]);

    if (x.size != 0) {
      void* data = nullptr;  // only read; the const accessor is a later addition to the ABI
      check(ort_api->GetTensorMutableData(const_cast<ort::Value*>(value), &data));
      x.data = data;
      observer_->update(config_, {*kernels_, SessionThreads(context)}, x);
    }
    const int64_t empty = 0;
    ort::Value* output = nullptr;
    check(ort_api->KernelContext_GetOutput(context, 0, &empty, 1, &output));
  }

 private:
  static constexpr size_t kMaxRank = 16;

  const ElementType type_;
  const Config config_;
  const std::shared_ptr<observe::Observer> observer_;
  const observe::Kernels* const kernels_ = observe::find_kernels();
};

ort::Status* infer_shape(const ort::CustomOp*, ort::ShapeInferContext* context) {
  return guarded([context] {
    ort::TensorInfo* raw = nullptr;
    check(ort_api->CreateTensorTypeAndShapeInfo(&raw));
    const TensorInfo info(raw);
    const int64_t empty = 0;
    check(ort_api->SetTensorElementType(raw, ort::kFloat32));
    check(ort_api->SetDimensions(raw, &empty, 1));
    check(ort_api->ShapeInferContext_SetOutputTypeShape(context, 0, raw));
  });
}

// onnxruntime reads an op through callbacks without closure; the element type is their closure.
template <ort::ElementType ort_type, ElementType type>
ort::CustomOp make_op() {
  using ort::CustomOp;
  using ort::KernelInfo;
  CustomOp op{};
  op.version = ort::kApiVersion;
  op.GetName = [](const CustomOp*) { return "Observe"; };
  op.GetExecutionProviderType = [](const CustomOp*) -> const char* { return nullptr; };
  op.GetInputTypeCount = [](const CustomOp*) -> size_t { return 1; };
  op.GetInputType = [](const CustomOp*, size_t) -> int { return ort_type; };
  op.GetInputCharacteristic = [](const CustomOp*, size_t) -> int { return ort::kRequired; };
  op.GetInputMemoryType = [](const CustomOp*, size_t) { return 0; };
  op.GetOutputTypeCount = [](const CustomOp*) -> size_t { return 1; };
  op.GetOutputType = [](const CustomOp*, size_t) -> int { return ort::kFloat32; };
  op.GetOutputCharacteristic = [](const CustomOp*, size_t) -> int { return ort::kRequired; };
  op.GetVariadicInputMinArity = [](const CustomOp*) { return 0; };
  op.GetVariadicInputHomogeneity = [](const CustomOp*) { return 0; };
  op.GetVariadicOutputMinArity = [](const CustomOp*) { return 0; };
  op.GetVariadicOutputHomogeneity = [](const CustomOp*) { return 0; };
  op.GetStartVersion = [](const CustomOp*) { return 1; };
  op.GetEndVersion = [](const CustomOp*) { return 1; };
  op.InferOutputShapeFn = infer_shape;
  op.CreateKernelV2 = [](const CustomOp*, const void*, const KernelInfo* info, void** kernel) {
    return guarded([&] { *kernel = new ObserveKernel(info, type); });
  };
  op.KernelComputeV2 = [](void* kernel, ort::KernelContext* context) {
    return guarded([&] { static_cast<const ObserveKernel*>(kernel)->compute(context); });
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<ObserveKernel*>(kernel); };
  return op;
}

}  // namespace

const ort::CustomOp* observe_ops(const ort::Api* api) {
  ort_api = api;
  static const ort::CustomOp ops[kObserveOps] = {
      make_op<ort::kFloat32, ElementType::kFloat32>(),
      make_op<ort::kFloat16, ElementType::kFloat16>(),
      make_op<ort::kFloat64, ElementType::kFloat64>(),
  };
  return ops;
}

}  // namespace lucid_fx
