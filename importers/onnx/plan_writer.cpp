#include "importers/onnx/plan_writer.h"

#include <onnx-ml.pb.h>

#include <algorithm>

#include "core/base/error.h"

namespace plait::onnx_import {
namespace {

constexpr int64_t least_ir = 11;  // the first with annotations

/// Whether a body has something else of that name.
bool hidden(const std::string& name, const BodyNames& bodies) {
  return std::any_of(bodies.begin(), bodies.end(), [&](const auto& names) { return names.contains(name); });
}

/// Groups of several devices get negative numbers, as in the standard's examples.
void write_spec(const ShardingSpec& spec, onnx::ShardingSpecProto& out) {
  out.set_tensor_name(spec.tensor);
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    const std::vector<int32_t>& group = spec.groups[i];
    numbers.push_back(group.size() == 1 ? group[0] : -1 - static_cast<int64_t>(i));
    if (group.size() == 1) continue;
    auto& entry = *out.add_index_to_device_group_map();
    entry.set_key(numbers.back());
    for (int32_t device : group) entry.add_value(device);
  }
  for (int32_t group : spec.holders) out.add_device(numbers[static_cast<size_t>(group)]);
  for (const ShardingSpec::Axis& axis : spec.axes) {
    auto& dim = *out.add_sharded_dim();
    dim.set_axis(axis.axis);
    for (const ShardingSpec::Factor& factor : axis.factors) {
      auto& simple = *dim.add_simple_sharding();
      simple.set_dim_value(factor.size);
      simple.set_num_shards(factor.shards);
    }
  }
}

}  // namespace

PlanWriter::PlanWriter(const DeviceConfiguration& plan) : plan_(plan) {
  for (const ShardingSpec& spec : plan.tensors) tensors_.emplace(spec.tensor, Entry{&spec});
}

std::string PlanWriter::head(const std::string& fields) const {
  onnx::ModelProto old, out;
  if (!old.ParseFromString(fields))
    throw Error(Code::bad_model, "not a valid ONNX file: its first fields are malformed");
  out.set_ir_version(std::max<int64_t>(old.ir_version(), least_ir));
  const auto write_own = [&] {
    auto& own = *out.add_configuration();
    own.set_name(plan_.name);
    own.set_num_devices(plan_.devices);
  };
  if (!plan_.stages.empty()) write_own();  // stages are read of the first configuration
  for (const auto& one : old.configuration())
    if (one.name() != plan_.name) *out.add_configuration() = one;
  if (plan_.stages.empty()) write_own();
  return out.SerializeAsString();
}

/// The first stage, from those of the results it reads on, that all of the tensors it reads allow.
int32_t PlanWriter::stage_of(const onnx::NodeProto& node, const BodyNames& bodies) const {
  std::vector<std::string> reads(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute())
    for (const auto& output : attribute.g().output()) reads.push_back(output.name());
  int32_t out = 0;
  for (const std::string& name : reads)
    if (auto found = stages_.find(name); found != stages_.end()) out = std::max(out, found->second);
  for (const std::string& name : reads) {
    const auto found = plan_.stages.find(name);
    if (found == plan_.stages.end() || hidden(name, bodies)) continue;
    const auto next = std::lower_bound(found->second.begin(), found->second.end(), out);
    if (next != found->second.end()) out = *next;
  }
  return out;
}

std::string PlanWriter::node(std::string bytes, const BodyNames& bodies) {
  onnx::NodeProto old, added;
  if (!old.ParseFromString(bytes)) throw Error(Code::bad_model, "not a valid ONNX file: a node inside is malformed");
  const auto own = [&]() -> onnx::NodeDeviceConfigurationProto& {
    if (!added.device_configurations_size()) added.add_device_configurations()->set_configuration_id(plan_.name);
    return *added.mutable_device_configurations(0);
  };
  if (!plan_.stages.empty()) {
    const int32_t stage = stage_of(old, bodies);
    own().set_pipeline_stage(stage);
    for (const std::string& name : old.output()) stages_[name] = stage;
  }
  std::set<std::string> seen;
  for (const std::string& name : old.input()) {
    auto found = tensors_.find(name);
    if (found == tensors_.end() || hidden(name, bodies) || !seen.insert(name).second) continue;
    found->second.read = true;
    write_spec(*found->second.spec, *own().add_sharding_spec());
  }
  auto& all = *old.mutable_device_configurations();
  const auto kept =
      std::remove_if(all.begin(), all.end(), [&](const auto& one) { return one.configuration_id() == plan_.name; });
  if (kept != all.end()) {
    all.erase(kept, all.end());
    bytes = old.SerializeAsString();
  }
  // Appended fields of a message merge with it.
  return bytes + added.SerializeAsString();
}

std::vector<std::string> PlanWriter::unread() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : tensors_)
    if (!entry.read) out.push_back(name);
  return out;
}

}  // namespace plait::onnx_import
