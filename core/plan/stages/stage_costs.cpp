#include "core/plan/stages/stage_costs.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/compile.h"

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
  ProbePrice(const TrainingModel& model, const ProbeTerms& probe, const StageTerms& terms, const PriceTerms& price)
      : model_(model), probe_(probe), terms_(terms), price_(price) {
    for (const auto& [name, program] : model_.programs) note_entries(*program);
    for (const auto& [name, sections] : model_.sections)
      for (const StageSection& section : sections) note_entries(*section.program);
    price_end();
  }

  StageCosts stage(int32_t number) const {
    StageCosts out;
    for (const StageSection& section : model_.sections.at(TrainingProgram::accumulate))
      if (section.stage == number) add_section(section, out);
    add_held(number, out);
    return out;
  }

 private:
  void note_entries(const Program& program) {
    const std::vector<int64_t> sizes = symbol_sizes(program, terms_.micro_batch, terms_.micro_batch);
    for (const StoreEntry& entry : program.entries)
      held_[entry.key] = shape_bytes(entry.dims, entry.dtype, sizes) * share_of(entry.key);
  }
  /// What is cut over two data ranks is smaller where there are more.
  double share_of(const std::string& key) const {
    const auto place = model_.places.find(key);
    if (terms_.data <= 2 || place == model_.places.end()) return 1;
    const AxisList axes = place->second.axes(), data = model_.mesh.parts("data");
    const bool cut = std::find(axes.begin(), axes.end(), data.front()) != axes.end();
    return cut ? 2.0 / static_cast<double>(terms_.data) : 1;
  }
  double held(const std::string& key) const {
    const auto found = held_.find(key);
    return found == held_.end() ? 0 : found->second;
  }

  /// Norm and update: of all parameters of the probe.
  void price_end() {
    for (const TrainingProgram name : {TrainingProgram::norm, TrainingProgram::update}) {
      if (!model_.has(name)) continue;
      const ProgramPrice one = price_of(model_.program(name), terms_.micro_batch, price_);
      const bool cut = probe_.zero > 0 && terms_.data > 2;  // each data rank updates its part
      end_.seconds += cut ? one.compute_s * 2 / static_cast<double>(terms_.data) : one.compute_s;
      end_.exposed_s += one.exposed();
    }
    for (const TrainedParameter& parameter : model_.parameters) all_ += held(parameter.key);
  }

  void add_section(const StageSection& section, StageCosts& out) const {
    const Program& program = *section.program;
    const ProgramPrice price = price_of(program, terms_.micro_batch, price_);
    SectionCosts& costs = out.sections[static_cast<size_t>(section.kind)];
    costs = {price.seconds, price.exposed(), price.flops};
    const std::vector<int64_t> sizes = symbol_sizes(program, terms_.micro_batch, terms_.micro_batch);
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
      if (terms_.cut_messages) bytes /= static_cast<double>(probe_.tensor);
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

  void add_held(int32_t number, StageCosts& out) const {
    const StageCut& cut = model_.cut[static_cast<size_t>(number)];
    const std::set<std::string> keys(cut.parameters.begin(), cut.parameters.end());
    double own = 0;
    for (const TrainedParameter& parameter : model_.parameters) {
      if (!keys.contains(parameter.key)) continue;
      out.parameters += static_cast<double>(parameter.shape.elements());
      own += held(parameter.key);
      out.weights += held(parameter.key);
      for (const std::string& key : store_keys::gradient_keys(parameter.key)) out.gradients += held(key);
      for (const OptimizerState& state : optimizer_states(probe_.optimizer, parameter.shape.rank()))
        out.optimizer += held(parameter.key + state.suffix);
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
       {&StageCosts::arena, &StageCosts::weights, &StageCosts::gradients, &StageCosts::optimizer,
        &StageCosts::parameters, &StageCosts::finish_s, &StageCosts::reduce_s})
    this->*member += times * other.*member;
  return *this;
}

StageCosts StageTable::stage(int64_t layers, bool is_first, bool is_last) const {
  StageCosts out = is_first ? first : is_last ? last : middle;
  if (is_first && is_last) out.add(last, 1);
  // A micro-batch's message has the size of the residual stream, whatever the stage has.
  out.forward_bytes = is_last ? 0 : middle.forward_bytes;
  out.backward_bytes = is_first ? 0 : middle.backward_bytes;
  return out.add(layer, static_cast<double>(layers));
}

StageProbe::StageProbe(const DecoderShape& shape, const ProbeTerms& terms, const OpSet& ops,
                       const KernelTable& kernels)
    : terms_(terms) {
  CompileOptions options{ops, kernels};
  std::vector<std::string> axes;
  if (terms.several_data_ranks) axes.emplace_back("data=2");
  if (terms.tensor > 1) axes.push_back(cat("tensor=", terms.tensor));
  options.mesh = Mesh::parse(join(axes, ","));
  int64_t layers = 0;
  for (const int64_t one : probe_layers) {
    options.stages.seats.push_back({0});
    options.stages.layers.push_back(one);
    layers += one;
  }
  options.stages.split_backward = terms.split;
  TrainingOptions training;
  training.row_tokens = shape.sequence;
  training.zero = terms.zero;
  training.recompute = terms.recompute;
  training.optimizer.kind = terms.optimizer;
  model_ =
      std::make_unique<const TrainingModel>(compile_training(decoder_graph(shape, layers, ops), options, training));
}

StageProbe::~StageProbe() = default;

StageTable StageProbe::price(const StageTerms& terms, const PriceTerms& given) const {
  PriceTerms price = given;
  price.data = terms.data > 2 ? terms.data : 0;
  price.tensor = terms_.tensor;
  const ProbePrice probe(*model_, terms_, terms, price);
  const StageCosts one = probe.stage(1), two = probe.stage(2);
  StageTable out;
  out.layer = StageCosts(two).add(one, -1);
  out.middle = StageCosts(one).add(out.layer, -1);
  out.first = probe.stage(0).add(out.layer, -1);
  out.last = probe.stage(3).add(out.layer, -1);
  return out;
}

}  // namespace plait
