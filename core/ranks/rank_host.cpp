#include "core/ranks/rank_host.h"

#include <numeric>

#include "core/base/text.h"
#include "core/ranks/commands.h"

namespace plait {
namespace {

std::vector<int64_t> ranks_after_0(int64_t size) {
  std::vector<int64_t> out(static_cast<size_t>(size - 1));
  std::iota(out.begin(), out.end(), 1);
  return out;
}

}  // namespace

RankHost::RankHost(const Mesh& mesh, const CommOptions& options, Serve serve) : others_(ranks_after_0(mesh.ranks())) {
  constexpr int64_t most = 1024;
  if (mesh.ranks() > most)
    throw Error(Code::invalid_argument,
                cat("the mesh ", quote(mesh.text()), " has ", mesh.ranks(), " ranks, and a process runs at most ",
                    most, " as threads"),
                "fewer ranks, or a process for each: mpirun");
  worlds_ = make_thread_world(static_cast<int>(mesh.ranks()), options);
  world_ = std::move(worlds_[0]);
  for (size_t i = 0; i < others_.size(); ++i) progress_.push_back(std::make_unique<LoadProgress>());
  threads_ = std::make_unique<RankThreads>(mesh.ranks());
  threads_->start([this, serve = std::move(serve)](int64_t rank) {
    const auto i = static_cast<size_t>(rank);
    try {
      serve(*worlds_[i], *progress_[i - 1]);
    } catch (...) {  // the world is over; later calls of its ranks throw the reason
      worlds_[i]->communicator().abort(current_error().message());
    }
    worlds_[i].reset();
  });
}

RankHost::RankHost(const Mesh& mesh, std::shared_ptr<World> world)
    : others_(ranks_after_0(world->size())), world_(std::move(world)) {
  if (world_->size() != mesh.ranks())
    throw Error(Code::invalid_argument,
                cat("the mesh ", quote(mesh.text()), " has ", mesh.ranks(), " ranks, and the world ", world_->size()),
                "start as many processes as the mesh has ranks");
}

RankHost::~RankHost() {
  cancel();
  try {
    broadcast(std::as_bytes(std::span(&end_command, 1)));
  } catch (...) {  // the world is over: they have ended
  }
}

std::vector<Report> RankHost::gather(std::span<const int64_t> ranks, Patience patience) const {
  return gather_with([] {}, ranks, patience);
}

std::vector<Report> RankHost::gather_with(FunctionRef<void()> own, std::span<const int64_t> ranks,
                                          Patience patience) const {
  std::exception_ptr failure;
  const auto keep_first_error = [&](FunctionRef<void()> task) {
    try {
      task();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  keep_first_error(own);
  std::vector<Report> out;
  keep_first_error([&] {
    for (int64_t rank : ranks)
      out.push_back({rank, world_->next_report(static_cast<int>(rank), patience == Patience::endless)});
  });
  for (const Report& report : out) keep_first_error([&] { report.reader(); });
  if (failure) std::rethrow_exception(failure);
  return out;
}

std::vector<Report> RankHost::gather_loaded(FunctionRef<void()> own) const {
  const auto cancelling = [&] {
    try {
      own();
    } catch (...) {
      cancel();
      throw;
    }
  };
  return gather_with(cancelling, others_, Patience::endless);
}

void RankHost::agree(FunctionRef<ProgramIdentities()> compile) const {
  ProgramIdentities own;
  const std::vector<Report> reports = gather_loaded([&] { own = compile(); });
  ProgramAgreement agreement;
  agreement.add(own, 0);
  for (const Report& report : reports) agreement.add(report.as<ProgramIdentities>(), report.rank);
}

void RankHost::cancel() const {
  for (const auto& progress : progress_) progress->cancel();
}

}  // namespace plait
