// The adapters that requests may name.
#include "core/base/text.h"
#include "serving/core.h"

namespace plait {

std::shared_ptr<const Adapter> SchedulerCore::adapter_named(const std::string& name) const {
  if (auto found = adapters.find(name); found != adapters.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [one, adapter] : adapters) names.push_back(one);
  throw Error(Code::not_found, cat("the generator has no adapter ", quote(name)),
              names.empty() ? "add it first" : cat("add it first; there are ", quote(join(names, ", "), 1000)));
}

void SchedulerCore::add_adapter(const std::string& name, const AdapterWeights& weights) {
  auto error = [&](Code code, std::string_view what, std::string_view hint) {
    return Error(code, cat("adapter ", quote(name), ": ", what), std::string(hint));
  };
  if (name.empty()) throw Error(Code::invalid_argument, "an adapter needs a name");
  {
    std::lock_guard lock(mutex);
    if (adapters.contains(name))
      throw error(Code::invalid_argument, "there is one of that name already",
                  "remove it first, or choose another name");
  }
  drop_dead();  // requests that have ended hold none
  std::shared_ptr<const Adapter> added;
  try {
    added = engine->add_adapter(name, weights);
  } catch (const Error& why) {
    throw error(why.code(), why.message(), why.hint());
  }
  std::lock_guard lock(mutex);
  adapters.emplace(name, std::move(added));
}

void Scheduler::add_adapter(const std::string& name, const AdapterWeights& weights) {
  core_->on_thread([&] { core_->add_adapter(name, weights); });
}

void Scheduler::remove_adapter(const std::string& name) {
  std::shared_ptr<const Adapter> gone;  // whose end needs no lock
  std::lock_guard lock(core_->mutex);
  gone = core_->adapter_named(name);
  core_->adapters.erase(name);
}

std::vector<std::string> Scheduler::adapters() const {
  std::lock_guard lock(core_->mutex);
  std::vector<std::string> out;
  for (const auto& [name, adapter] : core_->adapters) out.push_back(name);
  return out;
}

}  // namespace plait
