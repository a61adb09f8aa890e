#include "tests/unit/nodes/mutations.h"

#include <cstdlib>
#include <fstream>

#include "core/base/error.h"

namespace plait::test {
namespace {

/// The rule, changed wherever it names a factor.
template <class Change>
DimsRule with_factor(DimsRule rule, const std::string& name, Change change) {
  for (auto* tensors : {&rule.operands, &rule.results})
    for (RuleTensor& tensor : *tensors)
      for (RuleDim& dim : tensor.dims)
        for (Factor& factor : dim.factors)
          if (factor.name == name) change(factor);
  return rule;
}

}  // namespace

std::vector<Mutation> mutations(const DimsRule& rule) {
  using Kind = Mutation::Kind;
  std::vector<Mutation> out;
  for (const FactorUse& use : factors(rule)) {
    const std::string& name = use.factor.name;
    if (use.factor.whole && !use.factor.fixed && !use.factor.jagged)
      out.push_back({Kind::brackets, cat("[", name, "]"),
                     with_factor(rule, name, [](Factor& factor) { factor.whole = false; })});
    if (use.factor.offset)
      out.push_back(
          {Kind::offset, cat("@", name), with_factor(rule, name, [](Factor& factor) { factor.offset = false; })});
  }
  for (size_t k = 0; k < rule.operands.size(); ++k) {
    DimsRule changed = rule;
    Linearity& linear = changed.operands[k].linear;
    const bool extra = linear == Linearity::none;
    const char* flag = extra ? "no *" : linear == Linearity::alone ? "*" : "+";
    linear = extra ? Linearity::alone : Linearity::none;
    out.push_back({extra ? Kind::extra : Kind::linearity, cat(flag, " of input ", k), std::move(changed)});
  }
  for (size_t k = 0; k < rule.results.size(); ++k) {
    if (!rule.results[k].all) continue;
    DimsRule changed = rule;
    changed.results[k].all = false;
    out.push_back({Kind::all, cat("{all} of output ", k), std::move(changed)});
  }
  return out;
}

const char* Mutants::Fate::seen_by() const {
  if (wrong) return "wrong results";
  if (less) return "fewer placements";
  if (!more) return "changes nothing on these sizes";
  return kind == Mutation::Kind::extra ? "the sum could pass" : "it could be cut";
}

void Mutants::run(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands,
                  const std::vector<std::string>& meshes, double slack) {
  const std::optional<DimsRule> rule = rule_on(kernels, node, operands);
  if (!rule) return;
  Tried whole;
  for (const std::string& mesh : meshes)
    whole.add(expect_sharded_equals_whole(kernels, node, operands, Mesh::parse(mesh), slack));
  for (const Mutation& one : mutations(*rule)) {
    Fate& fate = fates_.try_emplace({node.op, text(*rule), one.what}, Fate{one.kind}).first->second;
    Tried tried;
    for (const std::string& mesh : meshes)
      tried.add(
          expect_sharded_equals_whole(kernels, node, operands, Mesh::parse(mesh), slack, &fate.wrong, &one.rule));
    fate.more += std::max(tried.placements - whole.placements, 0) + std::max(tried.passes - whole.passes, 0);
    fate.less = fate.less || tried.placements < whole.placements || tried.passes < whole.passes;
  }
}

std::string Mutants::line(const std::tuple<std::string, std::string, std::string>& key, const Fate& fate) const {
  const auto& [op, rule, what] = key;
  return cat(op, " | ", rule, " | ", what, " | ", fate.seen_by(), "\n");
}

std::string Mutants::survivors() const {
  std::string out, all;
  for (const auto& [key, fate] : fates_) {
    all += line(key, fate);
    // That one "*" more changes nothing proves nothing: the operand is of integers, or the case has but one placement.
    if (fate.survives() && (fate.more || fate.kind != Mutation::Kind::extra)) out += line(key, fate);
  }
  if (const char* path = std::getenv("PLAIT_MUTATIONS")) std::ofstream(path, std::ios::app) << all;
  return out;
}

}  // namespace plait::test
