// The entry point that onnxruntime calls: SessionOptions.register_custom_ops_library and its
// counterparts in C++, C#, Java and the mobile packages.
#include "library.h"

#include <atomic>
#include <mutex>

#include "matmul_op.h"
#include "observe_op.h"

namespace lucid_fx {
namespace {

std::atomic<ort::CustomOpDomain*> own_domain{nullptr};

// onnxruntime keeps pointers to the domain and its ops in every session, so there is one of each,
// and it is never released.
ort::Status* make_domain(const void* const* table, ort::CustomOpDomain** made) {
  ort::set_api(ort::Api::bind(table));
  const ort::Api& api = ort::api();
  ort::CustomOpDomain* domain = nullptr;
  if (ort::Status* s = api.CreateCustomOpDomain("lucid_fx", &domain)) return s;
  for (const OpList ops : {observe_ops(), matmul_ops()}) {
    for (size_t i = 0; i < ops.count; ++i) {
      if (ort::Status* s = api.CustomOpDomain_Add(domain, &ops.first[i])) {
        api.ReleaseCustomOpDomain(domain);
        return s;
      }
    }
  }
  *made = domain;
  return nullptr;
}

}  // namespace

void require_ops() {
  if (own_domain == nullptr) {
    throw InvalidArgument(
        "onnxruntime has not loaded this library: register it in a session first");
  }
}

ort::Status* add_ops(ort::SessionOptions* options) {
  return ort::api().AddCustomOpDomain(options, own_domain);
}

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
  const std::lock_guard<std::mutex> lock(mutex);
  if (own_domain == nullptr) {
    ort::CustomOpDomain* domain = nullptr;
    if (ort::Status* s = make_domain(table, &domain)) return s;
    own_domain = domain;
  }
  return add_ops(options);
}
