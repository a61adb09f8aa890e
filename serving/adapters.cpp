// Named adapters of the scheduler.
#include "core/base/text.h"
#include "serving/core.h"
#include "serving/scheduler.h"

namespace plait {

std::shared_ptr<const Adapter> SchedulerCore::adapter(const std::string& name) const {
  {
    std::lock_guard lock(mutex_);
    if (auto found = adapters_.find(name); found != adapters_.end()) return found->second;
  }
  const std::vector<std::string> names = adapters();
  throw Error(Code::not_found, cat("the generator has no adapter ", quote(name)),
              names.empty() ? "add it first" : cat("add it first; there are ", quote(join(names, ", "), 1000)));
}

void SchedulerCore::add_adapter(const std::string& name, const AdapterWeights& weights) {
  auto error = [&](Code code, std::string_view what, std::string_view hint) {
    return Error(code, cat("adapter ", quote(name), ": ", what), std::string(hint));
  };
  if (name.empty()) throw Error(Code::invalid_argument, "an adapter needs a name");
  {
    std::lock_guard lock(mutex_);
    if (adapters_.contains(name))
      throw error(Code::invalid_argument, "there is one of that name already",
                  "remove it first, or choose another name");
  }
  retire_finished();  // ended requests release their adapters
  std::shared_ptr<const Adapter> added;
  try {
    added = engine_->add_adapter(name, weights);
  } catch (const Error& why) {
    throw error(why.code(), why.message(), why.hint());
  }
  std::lock_guard lock(mutex_);
  adapters_.emplace(name, std::move(added));
}

void SchedulerCore::remove_adapter(const std::string& name) {
  decltype(adapters_)::node_type removed;  // destroyed outside the lock
  {
    std::lock_guard lock(mutex_);
    removed = adapters_.extract(name);
  }
  if (removed.empty()) adapter(name);  // throws
}

std::vector<std::string> SchedulerCore::adapters() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, adapter] : adapters_) out.push_back(name);
  return out;
}

void Scheduler::add_adapter(const std::string& name, const AdapterWeights& weights) {
  core_->thread().run([&] { core_->add_adapter(name, weights); });
}

void Scheduler::remove_adapter(const std::string& name) { core_->remove_adapter(name); }

std::vector<std::string> Scheduler::adapters() const { return core_->adapters(); }

}  // namespace plait
