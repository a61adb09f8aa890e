#include "core/plan/stages/stage_costs.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/train/compile_training.h"

namespace plait {
namespace {

constexpr int64_t probe_layers[] = {1, 1, 2, 1};

double shape_bytes(const Dims& dims, DType dtype, const std::vector<int64_t>& sizes) {
  double out = dtype_bits(dtype) / 8.0;
  for (const Dim& dim : dims) out *= static_cast<double>(std::max<int64_t>(dim.evaluate(sizes), 0));
  return out;
}

/// The stages of a compiled probe.
class ProbePrice {
 public:
  ProbePrice(const TrainingModel& model, const ProbeTerms& probe, OptimizerKind optimizer, const StageTerms& terms,
             const PriceTerms& price)
      : model_(model), probe_(probe), terms_(terms), price_(price) {
    for (const auto& [name, program] : model_.programs) note_entries(*program);
    for (const auto& [name, sections] : model_.sections)
      for (const StageSection& section : sections) note_entries(*section.program);
    for (const TrainedParameter& parameter : model_.parameters) {
      Trained& one = trained_.emplace_back(Trained{parameter.key});
      one.elements = static_cast<double>(parameter.shape.elements());
      one.weights = held(parameter.key);
      written_.insert(parameter.key);
      for (const std::string& key : store_keys::gradient_keys(parameter.key)) {
        one.gradients += held(key);
        written_.insert(key);
      }
      for (const OptimizerState& state : optimizer_states(optimizer, parameter.shape.rank())) {
        one.optimizer += held(parameter.key + state.suffix);
        written_.insert(parameter.key + state.suffix);
      }
    }
    price_end();
  }

  StageCosts stage(int32_t number) const {
    StageCosts out;
    std::set<std::string, std::less<>> constant;
    for (const StageSection& section : model_.sections.at(TrainingProgram::accumulate)) {
      if (section.stage != number) continue;
      add_section(section, out);
      for (const StoreEntry& entry : section.program->entries)
        if (!written_.contains(entry.key)) constant.insert(entry.key);
    }
    for (const std::string& key : constant) out.weights += held(key);
    add_trained(parameters_of(number), out);
    return out;
  }

  /// Of the parameters that both stages hold.
  StageCosts shared(int32_t a, int32_t b) const {
    const std::set<std::string> of_a = parameters_of(a), of_b = parameters_of(b);
    std::set<std::string> both;
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::inserter(both, both.end()));
    StageCosts out;
    add_trained(both, out);
    return out;
  }

 private:
  /// A trained parameter, in bytes of the rank.
  struct Trained {
    std::string key;
    double elements = 0, weights = 0, gradients = 0, optimizer = 0;
  };

  /// Of the symbol "t": tokens of a rank's row, or its part of them.
  int64_t tokens() const { return terms_.micro_batch / model_.token_multiple; }
  std::vector<int64_t> sizes_of(const Program& program) const {
    return symbol_sizes(program, tokens(), terms_.micro_batch);
  }

  void note_entries(const Program& program) {
    const std::vector<int64_t> sizes = sizes_of(program);
    for (const StoreEntry& entry : program.entries)
      held_[entry.key] = shape_bytes(entry.dims, entry.dtype, sizes) * share_of(entry.key);
  }
  /// What is cut over the probe's data ranks is smaller where there are more.
  double share_of(const std::string& key) const {
    const auto place = model_.places.find(key);
    if (terms_.data <= probe_.data || place == model_.places.end()) return 1;
    const AxisList axes = place->second.axes(), data = model_.mesh.parts("data");
    const bool cut = std::find(axes.begin(), axes.end(), data.front()) != axes.end();
    return cut ? data_share() : 1;
  }
  double data_share() const { return static_cast<double>(probe_.data) / static_cast<double>(terms_.data); }
  double held(const std::string& key) const {
    const auto found = held_.find(key);
    return found == held_.end() ? 0 : found->second;
  }

  /// Norm and update: of all parameters of the probe.
  void price_end() {
    for (const TrainingProgram name : {TrainingProgram::norm, TrainingProgram::update}) {
      if (!model_.has(name)) continue;
      const ProgramPrice one = price_of(model_.program(name), tokens(), price_);
      const bool cut = probe_.zero > 0 && terms_.data > probe_.data;  // each data rank updates its part
      end_.seconds += cut ? one.compute_s * data_share() : one.compute_s;
      end_.exposed_s += one.exposed();
    }
    for (const Trained& one : trained_) all_ += one.weights;
  }

  void add_section(const StageSection& section, StageCosts& out) const {
    const Program& program = *section.program;
    const ProgramPrice price = price_of(program, tokens(), price_, terms_.micro_batch);
    SectionCosts& costs = out.sections[static_cast<size_t>(section.kind)];
    costs = {price.seconds, price.exposed(), price.flops};
    const std::vector<int64_t> sizes = sizes_of(program);
    out.arena = std::max(out.arena, arena_bytes(program, sizes));
    out.slots = {};
    for (const Slot& slot : program.slots)
      out.slots[static_cast<size_t>(slot.pool)] += as_work(slot.dtype, shape_bytes(slot.dims, slot.dtype, sizes));
    for (const StageMessage& message : section.gives) {
      double bytes = 0;
      for (const int32_t value : message.values)
        bytes += buffer_bytes(program.buffers[static_cast<size_t>(program.outputs[static_cast<size_t>(value)])],
                              sizes, price_);
      const bool back = section.kind != Action::Kind::forward;
      if (terms_.cut_messages && model_.token_multiple == 1) bytes /= static_cast<double>(probe_.tensor);
      (back ? out.backward_bytes : out.forward_bytes) = bytes;
    }
  }

  double as_work(DType dtype, double bytes) const {
    return price_.work != DType::none && dtype == DType::f32 ? bytes * dtype_bits(price_.work) / 32 : bytes;
  }

  /// At these sizes, which need not be the bounds that the program was planned for.
  double arena_bytes(const Program& program, const std::vector<int64_t>& sizes) const {
    std::vector<int64_t> bytes;
    std::vector<int32_t> born, dies;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.place != Buffer::Place::arena) continue;
      bytes.push_back(static_cast<int64_t>(buffer_bytes(buffer, sizes, price_) + 63) / 64 * 64);
      born.push_back(buffer.born);
      dies.push_back(buffer.dies);
    }
    std::vector<int64_t> offsets(bytes.size());
    return static_cast<double>(plan_offsets(bytes, born, dies, offsets));
  }

  std::set<std::string> parameters_of(int32_t number) const {
    const StageCut& cut = model_.cut[static_cast<size_t>(number)];
    return {cut.parameters.begin(), cut.parameters.end()};
  }

  void add_trained(const std::set<std::string>& keys, StageCosts& out) const {
    double own = 0;
    for (const Trained& one : trained_) {
      if (!keys.contains(one.key)) continue;
      out.parameters += one.elements;
      own += one.weights;
      out.weights += one.weights;
      out.trained_weights += one.weights;
      out.gradients += one.gradients;
      out.optimizer += one.optimizer;
    }
    const double share = all_ > 0 ? own / all_ : 0;
    out.finish_s = end_.seconds * share;
    out.reduce_s = end_.exposed_s * share;
  }

  const TrainingModel& model_;
  const ProbeTerms& probe_;
  const StageTerms& terms_;
  const PriceTerms& price_;
  std::map<std::string, double, std::less<>> held_;
  std::vector<Trained> trained_;
  std::set<std::string, std::less<>> written_;  ///< keys of parameters, gradients and optimizer state
  SectionCosts end_;
  double all_ = 0;
};

}  // namespace

StageCosts& StageCosts::add(const StageCosts& other, double times) {
  for (size_t i = 0; i < sections.size(); ++i) {
    sections[i].seconds += times * other.sections[i].seconds;
    sections[i].exposed_s += times * other.sections[i].exposed_s;
    sections[i].flops += times * other.sections[i].flops;
    slots[i] += times * other.slots[i];
  }
  for (double StageCosts::*member :
       {&StageCosts::weights, &StageCosts::gradients, &StageCosts::optimizer, &StageCosts::trained_weights,
        &StageCosts::parameters, &StageCosts::finish_s, &StageCosts::reduce_s})
    this->*member += times * other.*member;
  return *this;
}

StageCosts StageTable::stage(int64_t begin, int64_t count, bool is_first, bool is_last) const {
  StageCosts out = is_first ? first : is_last ? last : middle;
  double arena = out.arena;
  if (is_first && is_last) {
    out.add(last, 1).add(middle, -1).add(tied, -1);  // what every stage has is in both
    arena = std::max(arena, last.arena);
  }
  for (int64_t i = 0; i < count; ++i) {
    out.add(layer(begin + i), 1);
    arena = layers.size() == 1 ? arena + layer(0).arena : std::max(arena, layer(begin + i).arena);
  }
  out.arena = arena;
  // A micro-batch's message has the size of the residual stream, whatever the stage has.
  out.forward_bytes = is_last ? 0 : middle.forward_bytes;
  out.backward_bytes = is_first ? 0 : middle.backward_bytes;
  return out;
}

StageProbe::StageProbe(const PlannedDecoder& decoder, const TrainingOptions& given, const ProbeTerms& terms)
    : terms_(terms),
      optimizer_(given.optimizer.kind),
      each_layer_(decoder.graph || decoder.shape.period() > 1),
      kinds_(decoder.graph ? decoder.shape.layers : decoder.shape.period()) {
  CompileOptions options = decoder.compile;
  std::vector<std::string> axes;
  if (terms.data > 1) axes.push_back(cat("data=", terms.data));
  if (terms.tensor > 1) axes.push_back(cat("tensor=", terms.tensor));
  options.mesh = Mesh::parse(join(axes, ","));
  options.stages.split_backward = terms.split;
  if (!terms.seeds.empty()) options.seeds = terms.seeds;
  TrainingOptions training = given;
  training.row_tokens = decoder.shape.sequence;
  training.zero = terms.zero;
  training.recompute = terms.recompute;
  const auto compiled = [&](std::vector<int64_t> layers) {
    options.stages.seats.assign(layers.size(), {0});
    options.stages.layers = std::move(layers);
    const auto& counts = options.stages.layers;
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    return std::make_unique<const TrainingModel>(compile_training(decoder.graph_of(all), options, training));
  };
  if (!each_layer_) {
    model_ = compiled({std::begin(probe_layers), std::end(probe_layers)});
    return;
  }
  const int64_t layers = decoder.graph ? kinds_ : 2 * kinds_;
  std::vector<int64_t> each(static_cast<size_t>(layers) + 2, 1);
  each.front() = each.back() = 0;
  model_ = compiled(std::move(each));
  if (layers > 2) pair_ = compiled({0, 2, layers - 2, 0});
}

StageProbe::~StageProbe() = default;

StageTable StageProbe::price(const StageTerms& terms, const PriceTerms& given) const {
  PriceTerms price = given;
  price.data = terms.data > terms_.data ? terms.data : 0;
  price.tensor = terms_.tensor;
  const ProbePrice probe(*model_, terms_, optimizer_, terms, price);
  StageTable out;
  if (each_layer_) {
    const auto last = static_cast<int32_t>(model_->cut.size()) - 1;
    for (int32_t stage = 1; stage < last; ++stage) out.layers.push_back(probe.stage(stage));
    if (pair_) {
      const ProbePrice pair(*pair_, terms_, optimizer_, terms, price);
      out.middle = StageCosts(out.layers[0]).add(out.layers[1], 1).add(pair.stage(1), -1);
      out.middle.arena = 0;
    }
    out.layers.resize(static_cast<size_t>(kinds_));
    for (StageCosts& layer : out.layers) layer.add(out.middle, -1);
    out.first = probe.stage(0).add(out.middle, 1);
    out.last = probe.stage(last).add(out.middle, 1);
    out.tied = probe.shared(0, last);
    out.middle.forward_bytes = out.first.forward_bytes;
    out.middle.backward_bytes = out.last.backward_bytes;
    return out;
  }
  const auto without = [](const StageCosts& a, const StageCosts& b) {
    StageCosts difference = StageCosts(a).add(b, -1);
    difference.arena = a.arena - b.arena;
    return difference;
  };
  const StageCosts one = probe.stage(1);
  const StageCosts layer = without(probe.stage(2), one);
  out.layers = {layer};
  out.middle = without(one, layer);
  out.first = without(probe.stage(0), layer);
  out.last = without(probe.stage(3), layer);
  out.tied = probe.shared(0, 3);
  return out;
}

}  // namespace plait
