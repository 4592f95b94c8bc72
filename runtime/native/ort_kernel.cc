#include "ort_kernel.h"

namespace lucid_fx::ort {
namespace {

Api bound_api;

// True when the node has the attribute.
bool present(Status* status) {
  if (status == nullptr) return true;
  api().ReleaseStatus(status);
  return false;
}

// Asks for the size of a string, with its terminating zero, and then for the string.
template <class Read>
std::string read_name(const Read& read) {
  size_t size = 0;
  check(read(nullptr, &size));
  std::string text(size, '\0');
  check(read(text.data(), &size));
  text.resize(size == 0 ? 0 : size - 1);
  return text;
}

}  // namespace

const Api& api() { return bound_api; }

void set_api(const Api& bound) { bound_api = bound; }

void check(Status* status) {
  if (status != nullptr) throw Error{status};
}

TensorInfoPtr new_tensor_info() {
  TensorInfo* info = nullptr;
  check(api().CreateTensorTypeAndShapeInfo(&info));
  return TensorInfoPtr(info);
}

size_t TensorView::size() const {
  size_t size = 1;
  for (const int64_t dim : dims) size *= static_cast<size_t>(dim);
  return size;
}

TensorView view(const Value* value) {
  TensorView tensor;
  if (value == nullptr) return tensor;
  TensorInfo* raw = nullptr;
  check(api().GetTensorTypeAndShape(value, &raw));
  const TensorInfoPtr info(raw);
  size_t rank = 0;
  check(api().GetDimensionsCount(raw, &rank));
  tensor.dims.resize(rank);
  check(api().GetDimensions(raw, tensor.dims.data(), rank));
  check(api().GetTensorElementType(raw, &tensor.type));
  // only read; the const accessor is a later addition to the ABI
  check(api().GetTensorMutableData(const_cast<Value*>(value), &tensor.data));
  return tensor;
}

TensorView input(const KernelContext* context, size_t index) {
  size_t count = 0;
  check(api().KernelContext_GetInputCount(context, &count));
  if (index >= count) return {};
  const Value* value = nullptr;
  check(api().KernelContext_GetInput(context, index, &value));
  return view(value);
}

void* output(KernelContext* context, const std::vector<int64_t>& dims) {
  Value* value = nullptr;
  check(api().KernelContext_GetOutput(context, 0, dims.data(), dims.size(), &value));
  void* data = nullptr;
  check(api().GetTensorMutableData(value, &data));
  return data;
}

std::string string_attribute(const KernelInfo* info, const char* name) {
  return read_name([&](char* out, size_t* size) {
    return api().KernelInfoGetAttribute_string(info, name, out, size);
  });
}

std::string string_attribute(const KernelInfo* info, const char* name, const char* otherwise) {
  size_t size = 0;
  if (!present(api().KernelInfoGetAttribute_string(info, name, nullptr, &size))) return otherwise;
  return string_attribute(info, name);
}

int64_t int_attribute(const KernelInfo* info, const char* name) {
  int64_t value = 0;
  check(api().KernelInfoGetAttribute_int64(info, name, &value));
  return value;
}

int64_t int_attribute(const KernelInfo* info, const char* name, int64_t otherwise) {
  int64_t value = otherwise;
  return present(api().KernelInfoGetAttribute_int64(info, name, &value)) ? value : otherwise;
}

float float_attribute(const KernelInfo* info, const char* name, float otherwise) {
  float value = otherwise;
  return present(api().KernelInfoGetAttribute_float(info, name, &value)) ? value : otherwise;
}

std::string node_name(const KernelInfo* info) {
  return read_name(
      [&](char* out, size_t* size) { return api().KernelInfo_GetNodeName(info, out, size); });
}

std::string input_name(const KernelInfo* info, size_t index) {
  return read_name([&](char* out, size_t* size) {
    return api().KernelInfo_GetInputName(info, index, out, size);
  });
}

bool has_input(const KernelInfo* info, size_t index) {
  size_t count = 0;
  check(api().KernelInfo_GetInputCount(info, &count));
  return index < count && !input_name(info, index).empty();
}

TensorView constant_input(const KernelInfo* info, size_t index) {
  if (!has_input(info, index)) return {};
  int is_constant = 0;
  const Value* value = nullptr;
  check(api().KernelInfoGetConstantInput_tensor(info, index, &is_constant, &value));
  return is_constant != 0 ? view(value) : TensorView{};
}

CustomOp plain_op() {
  CustomOp op{};
  op.version = kApiVersion;
  op.GetExecutionProviderType = [](const CustomOp*) -> const char* { return nullptr; };
  op.GetInputMemoryType = [](const CustomOp*, size_t) { return 0; };
  op.GetOutputTypeCount = [](const CustomOp*) -> size_t { return 1; };
  op.GetOutputCharacteristic = [](const CustomOp*, size_t) -> int { return kRequired; };
  op.GetVariadicInputMinArity = [](const CustomOp*) { return 0; };
  op.GetVariadicInputHomogeneity = [](const CustomOp*) { return 0; };
  op.GetVariadicOutputMinArity = [](const CustomOp*) { return 0; };
  op.GetVariadicOutputHomogeneity = [](const CustomOp*) { return 0; };
  op.GetStartVersion = [](const CustomOp*) { return 1; };
  op.GetEndVersion = [](const CustomOp*) { return 1; };
  return op;
}

}  // namespace lucid_fx::ort
