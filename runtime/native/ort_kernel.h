// What every custom op here needs around onnxruntime's ABI: statuses as exceptions and back, views
// of tensors, attributes, the session's threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "invalid_argument.h"
#include "ort_abi.h"
#include "parallel.h"

namespace lucid_fx::ort {

// The bound table; set once, before the first op is registered.
const Api& api();
void set_api(const Api& bound);

// A failed call of onnxruntime. It owns the status until the kernel hands it back.
struct Error {
  Status* status;
};

void check(Status* status);

// No exception may cross into onnxruntime: they end here, as a status.
template <class Body>
Status* guarded(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const Error& error) {
    return error.status;
  } catch (const InvalidArgument& error) {
    return api().CreateStatus(kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return api().CreateStatus(kRuntimeException, error.what());
  }
}

struct TensorInfoDeleter {
  void operator()(TensorInfo* info) const { api().ReleaseTensorTypeAndShapeInfo(info); }
};
using TensorInfoPtr = std::unique_ptr<TensorInfo, TensorInfoDeleter>;

TensorInfoPtr new_tensor_info();

// A dense tensor of a session. An optional input that is absent has no data and no dimensions.
struct TensorView {
  void* data = nullptr;
  int type = kUndefined;
  std::vector<int64_t> dims;

  size_t size() const;
};

TensorView view(const Value* value);  // null: absent
TensorView input(const KernelContext* context, size_t index);
// Memory for output 0.
void* output(KernelContext* context, const std::vector<int64_t>& dims);

// Attributes; an absent one leaves the default, or throws where there is none.
std::string string_attribute(const KernelInfo* info, const char* name);
std::string string_attribute(const KernelInfo* info, const char* name, const char* otherwise);
int64_t int_attribute(const KernelInfo* info, const char* name);
int64_t int_attribute(const KernelInfo* info, const char* name, int64_t otherwise);
float float_attribute(const KernelInfo* info, const char* name, float otherwise);
std::string node_name(const KernelInfo* info);
bool has_input(const KernelInfo* info, size_t index);
std::string input_name(const KernelInfo* info, size_t index);

// The value of an input that is an initializer; without data when it is computed, or absent.
TensorView constant_input(const KernelInfo* info, size_t index);

// The session's own thread pool.
class SessionThreads final : public Parallel {
 public:
  explicit SessionThreads(const KernelContext* context) : context_(context) {}

  void run(size_t tasks, void (*task)(void*, size_t), void* argument) const override {
    check(api().KernelContext_ParallelFor(context_, task, tasks, 0, argument));
  }

 private:
  const KernelContext* context_;
};

// An op with one required output, on the CPU, in version 1; the callbacks about operands, kernels
// and shapes are the caller's.
CustomOp plain_op();

}  // namespace lucid_fx::ort

namespace lucid_fx {

// Ops for CustomOpDomain_Add. They live as long as the process.
struct OpList {
  const ort::CustomOp* first;
  size_t count;
};

}  // namespace lucid_fx
