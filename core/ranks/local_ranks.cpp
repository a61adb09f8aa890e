#include "core/ranks/local_ranks.h"

#include <algorithm>

#include "core/comm/report.h"

namespace plait {

LocalRanks::LocalRanks(int64_t ranks, const CommOptions& options) : threads_(ranks) {
  if (ranks > 1) worlds_ = make_thread_world(static_cast<int>(ranks), options);
}

LocalRanks::LocalRanks(World& world) : process_(&world), first_(world.rank()), threads_(1) {}

World* LocalRanks::world(int64_t local) const {
  return worlds_.empty() ? process_ : worlds_[static_cast<size_t>(local)].get();
}

void LocalRanks::run(FunctionRef<void(int64_t local)> task) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count()));
  auto run_one = [&](int64_t local) {
    try {
      task(local);
    } catch (...) {
      errors[static_cast<size_t>(local)] = std::current_exception();
    }
  };
  if (count() > 1) threads_.start(run_one);
  run_one(0);
  if (count() > 1) threads_.wait();
  // If one rank ended the world, the others only have secondary errors.
  const int failed = worlds_.empty() ? 0 : std::max(worlds_[0]->communicator().failed_rank(), 0);
  if (errors[static_cast<size_t>(failed)]) std::rethrow_exception(errors[static_cast<size_t>(failed)]);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void LocalRanks::run_together(FunctionRef<void(int64_t local)> task) {
  run([&](int64_t local) {
    try {
      task(local);
    } catch (...) {
      if (World* own = world(local)) own->communicator().abort(current_error().message());
      throw;
    }
  });
}

}  // namespace plait
