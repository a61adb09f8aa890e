#include "importers/onnx/device_reader.h"

#include <onnx-ml.pb.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::onnx_import {
namespace {

// Far more devices than exist in one place.
constexpr int32_t most_devices = 1 << 20;
constexpr size_t most_warnings = 8;

Error wrong(const std::string& what) { return Error(Code::bad_model, what); }

/// The factors of an axis of `size`; an open or named size is the remaining quotient.
ShardingSpec::Axis read_axis(const onnx::ShardedDimProto& proto, int32_t axis, int64_t size) {
  ShardingSpec::Axis out{axis, {}};
  if (!proto.simple_sharding_size()) throw wrong(cat("axis ", axis, " has no number of shards"));
  int64_t left = size;
  int open = -1;
  for (const auto& factor : proto.simple_sharding()) {
    if (factor.num_shards() < 1) throw wrong(cat("axis ", axis, " is sharded into ", factor.num_shards(), " shards"));
    if (factor.has_dim_value()) {
      if (factor.dim_value() < 1 || left % factor.dim_value())
        throw wrong(cat("axis ", axis, " of size ", size, " is said to have a factor of ", factor.dim_value()));
      left /= factor.dim_value();
    } else if (open < 0) {
      open = static_cast<int>(out.factors.size());
    } else {
      throw wrong(cat("two sizes of axis ", axis, " are left open"));
    }
    out.factors.push_back({factor.dim_value(), factor.num_shards()});
  }
  if (open >= 0) out.factors[static_cast<size_t>(open)].size = left;
  else if (left != 1) throw wrong(cat("axis ", axis, " has size ", size, ", its factors make ", size / left));
  for (const ShardingSpec::Factor& factor : out.factors)
    if (factor.size % factor.shards)
      throw wrong(cat("axis ", axis, ": ", factor.size, " has no ", factor.shards, " equal shards"));
  return out;
}

/// Sets of devices by their number: a device's own, or one of the map.
class Groups {
 public:
  Groups(const onnx::ShardingSpecProto& proto, int32_t devices, ShardingSpec& out) : devices_(devices), out_(out) {
    for (const auto& entry : proto.index_to_device_group_map())
      if (!entries_.emplace(entry.key(), &entry).second)
        throw wrong(cat("device group ", entry.key(), " is specified twice"));
  }

  int32_t of(int64_t number) {
    auto [place, fresh] = numbers_.emplace(number, static_cast<int32_t>(out_.groups.size()));
    if (fresh) {
      auto entry = entries_.find(number);
      std::vector<int64_t> devices{number};
      if (entry != entries_.end()) devices.assign(entry->second->value().begin(), entry->second->value().end());
      add(devices);
    }
    return place->second;
  }

 private:
  void add(std::vector<int64_t> devices) {
    std::sort(devices.begin(), devices.end());
    if (devices.empty()) throw wrong("a device group is empty");
    if (std::adjacent_find(devices.begin(), devices.end()) != devices.end())
      throw wrong("a device group names a device twice");
    for (int64_t device : {devices.front(), devices.back()})
      if (device < 0 || device >= devices_) throw wrong(cat("there is no device ", device, " among ", devices_));
    out_.groups.emplace_back(devices.begin(), devices.end());
  }

  int32_t devices_;
  ShardingSpec& out_;
  std::map<int64_t, const onnx::IntIntListEntryProto*> entries_;
  std::map<int64_t, int32_t> numbers_;
};

ShardingSpec read_spec(const onnx::ShardingSpecProto& proto, const Constant& constant, int32_t devices) {
  ShardingSpec out;
  out.tensor = constant.initializer;
  const Shape shape = constant.shape();
  std::vector<bool> cut(static_cast<size_t>(shape.rank()), false);
  int64_t parts = 1;
  for (const auto& dim : proto.sharded_dim()) {
    if (dim.axis() < -shape.rank() || dim.axis() >= shape.rank())
      throw wrong(cat("axis ", dim.axis(), " of a tensor of rank ", shape.rank()));
    const auto axis = static_cast<int32_t>(dim.axis() < 0 ? dim.axis() + shape.rank() : dim.axis());
    if (cut[static_cast<size_t>(axis)]) throw wrong(cat("axis ", axis, " is sharded twice"));
    cut[static_cast<size_t>(axis)] = true;
    if (shape[axis] < 1) throw wrong(cat("axis ", axis, " has no elements"));
    out.axes.push_back(read_axis(dim, axis, shape[axis]));
    for (const ShardingSpec::Factor& factor : out.axes.back().factors) {
      if (factor.shards > ShardingSpec::most_parts / parts)
        throw wrong(cat("more than ", ShardingSpec::most_parts, " shards"));
      parts *= factor.shards;
    }
  }
  if (proto.device_size() != parts)
    throw wrong(cat("there are ", parts, " shards, and devices for ", proto.device_size()));
  Groups groups(proto, devices, out);
  for (int64_t number : proto.device()) out.holders.push_back(groups.of(number));
  return out;
}

}  // namespace

DeviceReader::DeviceReader(const onnx::ModelProto& model) {
  for (const auto& proto : model.configuration()) {
    const std::string where = cat("device configuration ", quote(proto.name()));
    if (proto.num_devices() < 1 || proto.num_devices() > most_devices) {
      warn(where, cat("it has ", proto.num_devices(), " devices"));
    } else if (!numbers_.emplace(proto.name(), configurations_.size()).second) {
      warn(where, "it is defined twice");
    } else {
      configurations_.push_back({proto.name(), proto.num_devices(), {}});
    }
  }
}

int32_t DeviceReader::read(const onnx::NodeProto& node, const std::string& where, const ConstantOf& constant_of) {
  int32_t stage = 0;
  for (const auto& proto : node.device_configurations()) {
    auto number = numbers_.find(proto.configuration_id());
    if (number == numbers_.end()) {
      warn(where, cat("there is no device configuration ", quote(proto.configuration_id())));
      continue;
    }
    if (proto.pipeline_stage() < 0) warn(where, cat("its pipeline stage is ", proto.pipeline_stage()));
    else if (number->second == 0) stage = proto.pipeline_stage();
    for (const auto& spec : proto.sharding_spec()) {
      const std::string& name = spec.tensor_name();
      const bool read = std::find(node.input().begin(), node.input().end(), name) != node.input().end();
      const Constant* constant = read ? constant_of(name) : nullptr;
      if (constant && !constant->initializer.empty()) {
        try {
          read_tensor(number->second, spec, *constant);
        } catch (const Error& error) {
          warn(where, cat("sharding of ", quote(name), ": ", error.message()));
        }
      } else if (read || std::find(node.output().begin(), node.output().end(), name) != node.output().end()) {
        ++activations_;
      } else {
        warn(where, cat("sharding of ", quote(name), ", which the node neither reads nor makes"));
      }
    }
  }
  return stage;
}

void DeviceReader::read_tensor(size_t configuration, const onnx::ShardingSpecProto& proto, const Constant& constant) {
  DeviceConfiguration& target = configurations_[configuration];
  ShardingSpec spec = read_spec(proto, constant, target.devices);
  auto [place, fresh] = known_.emplace(std::pair(configuration, spec.tensor), target.tensors.size());
  if (fresh) target.tensors.push_back(std::move(spec));
  else if (target.tensors[place->second] != spec) throw wrong("another node that reads it specifies something else");
}

void DeviceReader::warn(const std::string& where, const std::string& what) {
  if (++passed_over_ <= static_cast<int64_t>(most_warnings))
    warnings_.push_back(cat(where, ": ", what, "; this annotation is passed over"));
}

std::vector<std::string> DeviceReader::warnings() const {
  std::vector<std::string> out = warnings_;
  if (passed_over_ > static_cast<int64_t>(out.size()))
    out.push_back(cat(passed_over_ - static_cast<int64_t>(out.size()), " more device annotations are passed over"));
  if (activations_)
    out.push_back(cat(activations_,
                      " device annotations of values other than weights are ignored: their sharding "
                      "follows from the weights"));
  return out;
}

}  // namespace plait::onnx_import
