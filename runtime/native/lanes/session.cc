#include "session.h"

#include <stdexcept>
#include <utility>

#include "../library.h"

namespace lucid_fx::lanes {
namespace {

using Value = Owned<ort::Value, &ort::Api::ReleaseValue>;
using SessionOptions = Owned<ort::SessionOptions, &ort::Api::ReleaseSessionOptions>;

void require(ort::Status* status) {
  if (status == nullptr) return;
  const std::string text = ort::api().GetErrorMessage(status);
  ort::api().ReleaseStatus(status);
  throw std::runtime_error(text);
}

// What `create(&object)` gives, owned.
template <class Pointer, class Create>
Pointer made(const Create& create) {
  typename Pointer::pointer object = nullptr;
  require(create(&object));
  return Pointer(object);
}

SessionOptions session_options(const Options& from) {
  const ort::Api& api = ort::api();
  auto options = made<SessionOptions>([&](auto out) { return api.CreateSessionOptions(out); });
  require(api.SetSessionLogSeverityLevel(options.get(), ort::kFatal));
  require(api.SetIntraOpNumThreads(options.get(), 1));
  require(api.SetSessionGraphOptimizationLevel(
      options.get(), from.optimize ? ort::kOptimizeAll : ort::kOptimizeNothing));
  for (const auto& [key, value] : from.entries) {
    require(api.AddSessionConfigEntry(options.get(), key.c_str(), value.c_str()));
  }
  return options;
}

}  // namespace

Session::Session(const Source& source, const Options& options, std::string output)
    : output_(std::move(output)) {
  require_ops();
  const ort::Api& api = ort::api();
  env_ = made<decltype(env_)>([&](auto out) { return api.CreateEnv(ort::kFatal, "", out); });
  memory_ = made<decltype(memory_)>([&](auto out) {
    return api.CreateCpuMemoryInfo(ort::kArenaAllocator, ort::kDefaultMemory, out);
  });
  const SessionOptions with = session_options(options);
  require(add_ops(with.get()));
  session_ = made<decltype(session_)>([&](auto out) {
    return source.bytes == nullptr
               ? api.CreateSession(env_.get(), source.path, with.get(), out)
               : api.CreateSessionFromArray(env_.get(), source.bytes, source.size, with.get(), out);
  });
}

void Session::run(Sample& sample) const {
  const ort::Api& api = ort::api();
  std::vector<Value> owned;
  std::vector<const char*> names;
  std::vector<const ort::Value*> values;
  for (Array& array : sample) {
    owned.push_back(made<Value>([&](auto out) {
      return api.CreateTensorWithDataAsOrtValue(memory_.get(), array.data.data(), array.data.size(),
                                                array.dims.data(), array.dims.size(), array.type,
                                                out);
    }));
    names.push_back(array.name.c_str());
    values.push_back(owned.back().get());
  }
  const char* output = output_.c_str();
  made<Value>([&](auto out) {
    return api.Run(session_.get(), nullptr, names.data(), values.data(), values.size(), &output, 1,
                   out);
  });
}

}  // namespace lucid_fx::lanes
