#include "registry.h"

#include <map>
#include <mutex>

namespace lucid_fx::observe {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Observer>> observers;  // ordered: prefixes are ranges
};

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Never destroyed: sessions may outlive the static objects of this library.
Registry& registry() {
  static Registry* const the = new Registry;
  return *the;
}

}  // namespace

std::shared_ptr<Observer> acquire(const std::string& key) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  std::shared_ptr<Observer>& slot = r.observers[key];
  if (slot == nullptr) slot = std::make_shared<Observer>(key);
  return slot;
}

std::shared_ptr<Observer> find(const std::string& key) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto it = r.observers.find(key);
  return it == r.observers.end() ? nullptr : it->second;
}

void reset(const std::string& prefix) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  auto it = r.observers.lower_bound(prefix);
  while (it != r.observers.end() && starts_with(it->first, prefix)) {
    // New owners come from this map only, under this lock: a count of one cannot grow meanwhile.
    if (it->second.use_count() == 1) {
      it = r.observers.erase(it);
    } else {
      it->second->clear();
      ++it;
    }
  }
}

int64_t nonfinite(const std::string& prefix) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int64_t sum = 0;
  for (auto it = r.observers.lower_bound(prefix); it != r.observers.end(); ++it) {
    if (!starts_with(it->first, prefix)) break;
    sum += it->second->nonfinite();
  }
  return sum;
}

}  // namespace lucid_fx::observe
