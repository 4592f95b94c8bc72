// A model in a session of its own that runs in the calling thread, for the effects of its ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../ort_kernel.h"

namespace lucid_fx::lanes {

// A copy of one input of a sample.
struct Array {
  std::string name;
  int type;  // of an element, as ONNX numbers them
  std::vector<int64_t> dims;
  std::vector<unsigned char> data;
};

using Sample = std::vector<Array>;

// Where a model is: in memory, or in a file.
struct Source {
  const void* bytes;  // null: in the file
  size_t size;
  const char* path;
};

struct Options {
  bool optimize;
  std::map<std::string, std::string> entries;  // of onnxruntime's session configuration
};

// Calls the Release function of a table's slot.
template <auto Slot>
struct Release {
  template <class T>
  void operator()(T* object) const {
    (ort::api().*Slot)(object);
  }
};

template <class T, auto Slot>
using Owned = std::unique_ptr<T, Release<Slot>>;

class Session {
 public:
  // `output` is any of the model's: onnxruntime wants to be asked for one.
  // Both throw std::runtime_error with onnxruntime's words.
  Session(const Source& source, const Options& options, std::string output);

  // May be called by several threads at a time.
  void run(Sample& sample) const;

 private:
  Owned<ort::Env, &ort::Api::ReleaseEnv> env_;
  Owned<ort::MemoryInfo, &ort::Api::ReleaseMemoryInfo> memory_;
  Owned<ort::Session, &ort::Api::ReleaseSession> session_;
  const std::string output_;
};

}  // namespace lucid_fx::lanes
