// The entry point that onnxruntime calls: SessionOptions.register_custom_ops_library and its
// counterparts in C++, C#, Java and the mobile packages.
#include <mutex>

#include "observe_op.h"
#include "ort_abi.h"

namespace lucid_fx {
namespace {

struct Domain {
  ort::Api api{};
  ort::CustomOpDomain* domain = nullptr;
};

// onnxruntime keeps pointers to the domain and its ops in every session, so there is one of each,
// and it is never released.
ort::Status* make_domain(const void* const* table, Domain& made) {
  made.api = ort::Api::bind(table);
  ort::CustomOpDomain* domain = nullptr;
  if (ort::Status* s = made.api.CreateCustomOpDomain("lucid_fx", &domain)) return s;
  const ort::CustomOp* ops = observe_ops(&made.api);
  for (size_t i = 0; i < kObserveOps; ++i) {
    if (ort::Status* s = made.api.CustomOpDomain_Add(domain, &ops[i])) {
      made.api.ReleaseCustomOpDomain(domain);
      return s;
    }
  }
  made.domain = domain;
  return nullptr;
}

}  // namespace
}  // namespace lucid_fx

extern "C" __attribute__((visibility("default"))) lucid_fx::ort::Status* RegisterCustomOps(
    lucid_fx::ort::SessionOptions* options, const lucid_fx::ort::ApiBase* base) {
  using namespace lucid_fx;
  const void* const* table = base->GetApi(ort::kApiVersion);
  if (table == nullptr) {
    // Creating a status is the first slot of every version.
    const void* const* oldest = base->GetApi(1);
    if (oldest == nullptr) return nullptr;
    return ort::Api::bind_create_status(oldest)(
        ort::kFail, "the lucid_fx library needs onnxruntime 1.18 or newer");
  }
  static std::mutex mutex;
  static Domain made;
  const std::lock_guard<std::mutex> lock(mutex);
  if (made.domain == nullptr) {
    if (ort::Status* s = make_domain(table, made)) return s;
  }
  return made.api.AddCustomOpDomain(options, made.domain);
}
