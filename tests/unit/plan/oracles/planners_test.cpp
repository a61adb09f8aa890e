// Plans of other planners, from the profiles that these had: layers of models on V100.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/plan/price/instruction_price.h"
#include "core/plan/search/plan_search.h"
#include "core/plan/search/seat_cuts.h"
#include "core/schedule/schedules.h"
#include "core/schedule/timeline.h"
#include "tests/unit/plan/oracles/tables.h"
#include "tests/unit/plan/plan_world.h"

namespace plait::test {
namespace {

/// A model's layers, as sums of the first i.
struct Profile {
  std::vector<double> forward_s{0}, backward_s{0}, parameter_bytes{0}, crosses{0};  ///< the last: after i layers

  explicit Profile(const std::string& name) {
    for (const TableRow& row : read_table(cat("profile_", name, ".csv"))) {
      forward_s.push_back(forward_s.back() + 1e-3 * row.number("forward_ms"));
      backward_s.push_back(backward_s.back() + 1e-3 * row.number("backward_ms"));
      parameter_bytes.push_back(parameter_bytes.back() + row.number("parameter_bytes"));
      crosses.push_back(row.number("activation_bytes"));
    }
  }
  size_t layers() const { return forward_s.size() - 1; }
  double work_s(size_t begin, size_t end) const {
    return forward_s[end] - forward_s[begin] + backward_s[end] - backward_s[begin];
  }
};

Machine cluster(int64_t a_node, double between_bits) {
  Machine out;
  if (a_node > 1) out.levels.push_back({"nvlink", a_node, 100e9, 0, false});
  out.levels.push_back({"network", 0, between_bits / 8, 0, true});
  return out;
}

std::vector<int32_t> ranks_of(int64_t first, int64_t seats) {
  std::vector<int32_t> out(static_cast<size_t>(seats));
  std::iota(out.begin(), out.end(), static_cast<int32_t>(first));
  return out;
}

/// A step of a cut: the schedule's lists, then each stage's sum of gradients over its seats.
double step_of(const SeatCut& cut, const Profile& profile, int32_t micro_batches, const Machine& machine) {
  struct Stage {
    size_t begin, end;
  };
  std::vector<Stage> stages;
  std::vector<std::string> widths;
  size_t begin = 0;
  for (size_t i = 0; i < cut.seats.size(); ++i) {
    stages.push_back({begin, begin + static_cast<size_t>(cut.units[i])});
    begin = stages.back().end;
    widths.push_back(cat(cut.seats[i]));
  }
  const Seats seats = parse_seat_widths(join(widths, ":"));
  TimelineOptions options;
  options.cost = [&](const Action& action) {
    const Stage& one = stages[static_cast<size_t>(action.stage)];
    const auto& of = action.kind == Action::Kind::forward ? profile.forward_s : profile.backward_s;
    return of[one.end] - of[one.begin];
  };
  options.link = [&](int32_t from, int32_t to, const Action&, int32_t to_stage) {
    const LinkLevel& level = machine.level_between(from, to);
    const size_t later = static_cast<size_t>(std::max<int32_t>(to_stage, 1));
    return LinkTime{0, profile.crosses[stages[later].begin] / machine.bandwidth(level, 1)};
  };
  ScheduleShape shape{.ranks = static_cast<int32_t>(std::accumulate(cut.seats.begin(), cut.seats.end(), int64_t{0})),
                      .micro_batches = micro_batches,
                      .seats = seats};
  shape.costs.action = options.cost;
  const Schedule schedule = make_schedule("1f1b", shape);
  const Timeline timeline = simulate(schedule, options);
  std::vector<double> ends(stages.size(), 0);
  for (const TimelineSpan& span : timeline.spans) {
    double& end = ends[static_cast<size_t>(span.action.stage)];
    end = std::max(end, span.end_s);
  }
  double out = 0;
  for (size_t i = 0; i < stages.size(); ++i)
    out = std::max(out,
                   ends[i] + (seats[i].size() < 2 ? 0
                                                  : collective_seconds(CollectiveKind::all_reduce, seats[i],
                                                                       profile.parameter_bytes[stages[i].end] -
                                                                           profile.parameter_bytes[stages[i].begin],
                                                                       machine)));
  return out;
}

std::string name_of(const SeatCut& cut, int64_t ranks) {
  if (cut.seats.size() == 1) return "DP";
  if (static_cast<int64_t>(cut.seats.size()) == ranks) return "straight";
  std::vector<std::string> out;
  for (const int64_t one : cut.seats) out.push_back(cat(one));
  return join(out, ":");
}

SeatCosts costs_of(const Profile& profile, const Machine& machine, double micro_batches) {
  SeatCosts out;
  out.stage = [&profile, &machine, micro_batches](size_t begin, size_t end, int64_t first, int64_t seats) {
    const double rounds = std::ceil(micro_batches / static_cast<double>(seats));
    double reduce = 0;
    if (seats > 1)
      reduce = collective_seconds(CollectiveKind::all_reduce, ranks_of(first, seats),
                                  profile.parameter_bytes[end] - profile.parameter_bytes[begin], machine);
    return (profile.work_s(begin, end) * rounds + reduce) / micro_batches;
  };
  out.message = [&profile, &machine](size_t begin, int64_t first) {
    return 2 * profile.crosses[begin] / machine.bandwidth(machine.level_between(first - 1, first), 1);
  };
  return out;
}

struct Found {
  std::string name;
  double step_s = std::numeric_limits<double>::infinity();
  void take(const SeatCut& cut, int64_t ranks, double seconds) {
    if (seconds < step_s) *this = {name_of(cut, ranks), seconds};
  }
};

/// What DAPPLE's planner chose from: one stage, two, or as many as ranks.
Found best_of_dapples(const Profile& profile, int32_t micro_batches, const Machine& machine,
                      const std::string& published, double& published_s) {
  constexpr int64_t ranks = 16;
  const SeatCosts costs = costs_of(profile, machine, micro_batches);
  std::vector<SeatCut> cuts;
  for (const SeatCut& cut : seat_cuts(profile.layers(), ranks, ranks, costs))
    if (cut.seats.size() == 1 || cut.seats.size() == ranks) cuts.push_back(cut);
  for (int64_t first = 1; first < ranks; ++first) {  // of each two widths the best cut
    SeatCut best{{first, ranks - first}, {}, std::numeric_limits<double>::infinity()};
    for (size_t at = 1; at < profile.layers(); ++at) {
      const double slowest =
          std::max({costs.stage(0, at, 0, first), costs.stage(at, profile.layers(), first, ranks - first),
                    costs.message(at, first)});
      if (slowest < best.slowest_s)
        best = {best.seats, {static_cast<int64_t>(at), static_cast<int64_t>(profile.layers() - at)}, slowest};
    }
    cuts.push_back(best);
  }
  Found out;
  for (const SeatCut& cut : cuts) {
    const double seconds = step_of(cut, profile, micro_batches, machine);
    out.take(cut, ranks, seconds);
    if (name_of(cut, ranks) == published) published_s = seconds;
  }
  return out;
}

/// Of DAPPLE's 15 plans 11 are ours among those that it chose from, or as fast within 2 %. The others, as we price them: VGG-19 A and B,
/// where its data parallel hides more of the reduction of gradients than ours; GNMT B, 4:12 10 % before 8:8; XLNet B, 8:8 10 % before 16
/// stages, for seats have micro-batches of their own here, where its replicas split each. Among all cuts ours are never slower.
TEST(Planners, Dapple) {
  int same = 0;
  std::string others;
  for (const TableRow& row : read_table("dapple.csv")) {
    const Profile profile(row.text("model"));
    const auto micro_batches = static_cast<int32_t>(row.integer("batch") / row.integer("micro_batch"));
    for (const auto& [column, machine] :
         {std::pair("a", cluster(8, 25e9)), std::pair("b", cluster(1, 25e9)), std::pair("c", cluster(1, 10e9))}) {
      const std::string published = row.text(column);
      double published_s = 0;
      const Found found = best_of_dapples(profile, micro_batches, machine, published, published_s);
      const double slower = published_s / found.step_s;
      same += slower <= 1.02;
      if (slower > 1.02) others += cat(" ", row.text("model"), " ", column, " ", found.name, " ", slower);
      Found any = found;
      for (const SeatCut& cut : seat_cuts(profile.layers(), 16, 16, costs_of(profile, machine, micro_batches)))
        if (cut.slowest_s * micro_batches < any.step_s)
          any.take(cut, 16, step_of(cut, profile, micro_batches, machine));
      EXPECT_LE(any.step_s, published_s) << row.text("model") << " " << column;
    }
  }
  EXPECT_GE(same, 10) << others;
}

/// PipeDream's plans of VGG-16 by its own price of a stage, at the bandwidth of its optimizer: on 4, 8 and 16 ranks the last stage has
/// one. It cuts after the third pooling, a few layers before the fourth, and after the last one (repository,
/// runtime/image_classification/models/vgg16); with 8 ours is after the last, too, where the message is a sixteenth.
TEST(Planners, PipeDream) {
  const Profile profile("vgg16");
  constexpr double bandwidth = 1e9;
  for (const int64_t ranks : {4, 8, 16}) {
    SeatCosts costs;
    costs.stage = [&](size_t begin, size_t end, int64_t, int64_t seats) {
      const auto q = static_cast<double>(seats);
      const double sent = profile.parameter_bytes[end] - profile.parameter_bytes[begin];
      return std::max(profile.work_s(begin, end), 2 * (q - 1) / q * sent / bandwidth) / q;
    };
    costs.message = [&](size_t begin, int64_t) { return 2 * profile.crosses[begin] / bandwidth; };
    SeatCut best{{}, {}, std::numeric_limits<double>::infinity()};
    for (const SeatCut& cut : seat_cuts(profile.layers(), ranks, static_cast<size_t>(ranks), costs))
      if (cut.slowest_s < best.slowest_s) best = cut;
    EXPECT_EQ(best.seats, (std::vector<int64_t>{ranks - 1, 1})) << ranks;
    const double after[] = {102760448, 12845056, 12845056};  // bytes that the third and the last pooling give
    EXPECT_EQ(profile.crosses[static_cast<size_t>(best.units.front())], after[ranks / 8]) << ranks;
  }
}

/// A plan of Alpa's and the search's own, within a tenth more than the memory that Alpa's takes.
struct AlpaPlans {
  StepPrice its;
  SearchResult ours;
};

AlpaPlans alpa_plans(const DecoderShape& shape, Plan its, int64_t micro_batches) {
  PlanPricer pricer({.decoder = {PlanWorld::get().options(), shape},
                     .machine = open_machine("v100"),
                     .batch = 1024,
                     .work = DType::f16});
  its.micro_batch = 1024 / its.data / micro_batches * shape.sequence;
  its.recompute = Recompute::full;
  AlpaPlans out{pricer.price(its), {}};
  PlanLimits limits{.ranks = its.ranks(), .memory_bytes = 1.1 * out.its.most_bytes()};
  limits.schedule = "1f1b";  // a part of the search, which is shorter
  limits.recompute = Recompute::full;
  limits.zero = 1;
  limits.seeds = {shape.experts ? "expert_data" : "tensor"};
  if (shape.experts) limits.tensor = 1;  // as Alpa's
  out.ours = search_plan(pricer, limits);
  return out;
}

/// Alpa's plans of GPT, each priced as it is; ours, from the search, are as fast or faster, though they may not have the meshes of
/// unlike stages but as seats.
TEST(Planners, Alpa) {
  for (const TableRow& row : read_table("alpa_gpt.csv")) {
    const int64_t layers = row.integer("layers");
    Plan its{row.integer("pipeline"), row.integer("data"), row.integer("tensor")};
    if (row.text("seats") != "-") {
      for (const auto& of : parse_seat_widths(row.text("seats")))
        its.seats.push_back(static_cast<int64_t>(of.size()));
      const int64_t ranks = std::accumulate(its.seats.begin(), its.seats.end(), int64_t{0});
      for (const int64_t seats : its.seats) its.layers.push_back(layers * seats / ranks);
    }
    const AlpaPlans both =
        alpa_plans(parse_decoder_shape(cat("family=gpt,layers=", layers, ",hidden=", row.integer("hidden"),
                                           ",heads=", row.integer("heads"), ",sequence=1024,vocabulary=51200")),
                   its, row.integer("micro_batches"));
    EXPECT_LE(both.ours.best.step_s, both.its.step_s) << row.text("name");
  }
}

/// The same of mixtures of experts, which Alpa gives to the ranks of a stage, as the seed expert_data does: within a stage both send the
/// same, though Alpa's exchange sends a token to its experts only.
TEST(Planners, AlpasMixturesOfExperts) {
  for (const TableRow& row : read_table("alpa_moe.csv")) {
    Plan its{row.integer("pipeline"), row.integer("data")};
    its.seeds = {"expert_data"};
    its.zero = 1;
    const AlpaPlans both = alpa_plans(
        parse_decoder_shape(cat("family=llama,layers=", row.text("layers"), ",hidden=", row.text("hidden"),
                                ",heads=", row.text("heads"), ",feed_forward=", row.text("feed_forward"),
                                ",experts=", row.text("experts"),
                                ",experts_used=2,experts_every=2,tied=true,sequence=1024,vocabulary=32000")),
        its, row.integer("micro_batches"));
    RecordProperty(row.text("name"),
                   cat(both.its.step_s, " ", both.ours.best.step_s, " ", both.ours.best.plan.mesh()));
    EXPECT_LE(both.ours.best.step_s, both.its.step_s) << row.text("name");
    EXPECT_LE(both.ours.best.most_bytes(), 1.1 * both.its.most_bytes()) << row.text("name");
  }
}

}  // namespace
}  // namespace plait::test
