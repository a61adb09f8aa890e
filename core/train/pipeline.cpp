#include "core/train/pipeline.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/stage/stage.h"

namespace plait {
namespace {

Pipeline::Plan checked(Schedule schedule, const std::vector<StageEdge>& edges) {
  ScheduleFacts facts = check_schedule(schedule, {.edges = edges});
  return {std::move(schedule), std::max(facts.places, 1), std::move(facts)};
}

}  // namespace

bool is_asynchronous(const PipelineOptions& options) {
  const std::string name = options.schedule.substr(0, options.schedule.find(':'));
  const auto rows = schedule_rows();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const ScheduleRow& row) { return row.name == name && row.asynchronous; });
}

Pipeline::Pipeline(const PipelineOptions& options, const Mesh& mesh)
    : ranks_(static_cast<int32_t>(mesh.blocks(mesh.parts("pipeline")))), options_(options) {
  if (ranks_ == 1 && options_.schedule == PipelineOptions().schedule) return;
  const Seats seats = options_.seats.empty() ? Seats() : parse_seat_widths(options_.seats);
  if (options_.lists()) {
    given_ = parse_schedule(options_.schedule);
    if (given_->is_asynchronous())
      throw Error(Code::unsupported, "lists with updates of weights are of one window, and steps do not always fit it",
                  "name an asynchronous schedule (pipedream, 2bw) instead of giving lists");
    check_schedule(*given_);
    if (static_cast<int32_t>(given_->ranks.size()) != ranks_)
      throw Error(Code::invalid_argument, cat("the schedule has lists of ", given_->ranks.size(), " ranks, the mesh ",
                                              quote(mesh.text()), " has ", ranks_, " along pipeline"));
    terms_ = {.seats = given_->seats,
              .whole = given_->has(Action::Kind::backward),
              .split = given_->is_split()};
    micro_batches_ = given_->micro_batches;
  } else {
    terms_ = schedule_terms(options_.schedule, ranks_, seats);
    micro_batches_ = options_.micro_batches ? options_.micro_batches : int64_t{4} * ranks_;
  }
  stages_.seats = terms_.seats;
  edges_ = chain_edges(stages_.count());
  stages_.whole_backward = terms_.whole;
  stages_.split_backward = terms_.split;
  read_cut(options_.stages, stages_);
}

const Pipeline::Plan& Pipeline::training(int64_t micro_batches) {
  auto known = training_.find(micro_batches);
  if (known != training_.end()) return known->second;
  if (given_ && given_->micro_batches != micro_batches)
    throw Error(Code::invalid_argument, cat("the schedule's lists are of ", given_->micro_batches,
                                            " micro-batches, the step has ", micro_batches),
                "name a schedule instead of giving lists, or choose batch and row_tokens to fit them");
  Schedule made = given_ ? *given_
                         : make_schedule(options_.schedule, {.ranks = ranks_,
                                                             .micro_batches = static_cast<int32_t>(micro_batches),
                                                             .seats = options_.seats.empty() ? Seats() : terms_.seats});
  return training_.emplace(micro_batches, checked(std::move(made), edges_)).first->second;
}

const Pipeline::Plan& Pipeline::window(int64_t micro_batches, int64_t steps) {
  auto known = windows_.find({micro_batches, steps});
  if (known != windows_.end()) return known->second;
  Schedule made = make_schedule(options_.schedule, {.ranks = ranks_,
                                                    .micro_batches = static_cast<int32_t>(micro_batches),
                                                    .steps = static_cast<int32_t>(steps),
                                                    .global_norm = true});
  return windows_.emplace(std::pair(micro_batches, steps), checked(std::move(made), edges_)).first->second;
}

bool Pipeline::is_consistent() const {
  if (!terms_.asynchronous) return true;
  return make_schedule(options_.schedule, {.ranks = ranks_, .micro_batches = 1}).is_consistent();
}

const Pipeline::Plan& Pipeline::forward(int64_t micro_batches) {
  auto known = forward_.find(micro_batches);
  if (known != forward_.end()) return known->second;
  // Evaluation takes any number of micro-batches: each rank's stages, one micro-batch after another.
  Schedule made;
  made.stages = stages_.count();
  made.micro_batches = static_cast<int32_t>(micro_batches);
  made.seats = stages_.seats;
  made.ranks.resize(static_cast<size_t>(ranks_));
  for (int32_t k = 0; k < made.micro_batches; ++k)
    for (int32_t stage = 0; stage < made.stages; ++stage)
      made.ranks[static_cast<size_t>(made.rank_of(stage, k))].push_back({Action::Kind::forward, stage, k});
  // Messages of one micro-batch are taken before those of the next: so many are enough.
  const Plan plan{std::move(made), std::max(static_cast<int32_t>(edges_.size()), 1), {}};
  return forward_.emplace(micro_batches, plan).first->second;
}

void Pipeline::set_edges(std::vector<StageEdge> edges) {
  edges_ = std::move(edges);
  training_.clear();
  forward_.clear();
}

}  // namespace plait
