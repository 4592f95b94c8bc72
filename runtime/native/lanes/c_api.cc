#include "../c_api.h"

#include <memory>
#include <utility>

#include "../c_api_errors.h"
#include "lanes.h"

struct lfx_session {
  std::shared_ptr<const lucid_fx::lanes::Session> session;
};

struct lfx_lanes {
  std::shared_ptr<lucid_fx::lanes::Lanes> lanes;
};

namespace {

using namespace lucid_fx;
using lanes::Array;

Array copied(const lfx_array& from) {
  const auto* bytes = static_cast<const unsigned char*>(from.data);
  return {from.name, from.type, {from.dims, from.dims + from.rank}, {bytes, bytes + from.bytes}};
}

}  // namespace

int lfx_session_open(const lfx_session_source* source, lfx_session** out) {
  return guarded([&] {
    lanes::Options options{source->optimize != 0, {}};
    for (size_t i = 0; i < source->entry_count; ++i) {
      options.entries[source->entries[2 * i]] = source->entries[2 * i + 1];
    }
    *out = new lfx_session{std::make_shared<const lanes::Session>(
        lanes::Source{source->model, source->size, source->path}, options, source->output)};
  });
}

void lfx_session_close(lfx_session* session) { delete session; }

int lfx_lanes_new(const lfx_session* session, size_t threads, lfx_lanes** out) {
  return guarded(
      [&] { *out = new lfx_lanes{std::make_shared<lanes::Lanes>(session->session, threads)}; });
}

int lfx_lanes_put(lfx_lanes* lanes, const lfx_array* inputs, size_t count) {
  return guarded([&] {
    lanes::Sample sample;
    for (size_t i = 0; i < count; ++i) sample.push_back(copied(inputs[i]));
    if (!lanes->lanes->put(std::move(sample))) throw InvalidArgument("a sample has failed");
  });
}

int lfx_lanes_finish(lfx_lanes* lanes) {
  return guarded([&] {
    const std::string failure = lanes->lanes->finish();
    if (!failure.empty()) throw std::runtime_error(failure);
  });
}

int64_t lfx_lanes_done(const lfx_lanes* lanes) { return lanes->lanes->done(); }

void lfx_lanes_free(lfx_lanes* lanes) {
  if (lanes != nullptr) lanes->lanes->finish();
  delete lanes;
}
