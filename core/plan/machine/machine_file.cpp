// Machines as JSON files.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/plan/machine/machine.h"
#include "core/plan/machine/machine_files.h"
#include "core/plan/machine/quantity.h"

namespace plait {
namespace {

using Json = nlohmann::ordered_json;

double positive(double value, const std::string& path) {
  if (value <= 0) throw Error(Code::invalid_argument, cat(path, " must be more than 0"));
  return value;
}

/// An object of the file, whose fields are all known, and are read once each.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is no object");
  }
  /// Call it when all fields are read.
  void finish() const {
    for (const auto& [name, value] : object_.items())
      if (std::find(read_.begin(), read_.end(), name) == read_.end())
        throw Error(Code::invalid_argument, cat(where_, " has the unknown field ", quote(name)),
                    cat("known: ", join(read_, ", ")));
  }
  const Json& at(const std::string& name) {
    note(name);
    const auto found = object_.find(name);
    if (found == object_.end()) throw Error(Code::invalid_argument, cat(where_, " lacks the field ", quote(name)));
    return *found;
  }
  bool has(const std::string& name) {
    note(name);
    return object_.contains(name);
  }
  std::string path(const std::string& name) const { return cat(where_, ", field ", quote(name)); }

  std::string text(const std::string& name) {
    const Json& value = at(name);
    if (!value.is_string()) throw Error(Code::invalid_argument, cat(path(name), " is no text"));
    return value.get<std::string>();
  }
  double quantity(const std::string& name, Unit unit) {
    const std::string written = text(name);
    try {
      return parse_quantity(written, unit);
    } catch (const Error& error) {
      throw error.at(path(name));
    }
  }
  /// One quantity above 0, or an object of quantities by size, ascending: {"8": "20 GFLOP/s", "512": "90 GFLOP/s"}.
  Speed speed(const std::string& name, Unit unit, Unit size_unit) {
    const Json& value = at(name);
    if (!value.is_object()) return positive(quantity(name, unit), path(name));
    Fields rows(value, path(name));
    std::vector<Speed::Point> points;
    try {
      for (const auto& [size, speed] : value.items())
        points.push_back({parse_quantity(size, size_unit), rows.quantity(size, unit)});
      return Speed(std::move(points));
    } catch (const Error& error) {
      throw error.at(path(name));
    }
  }
  bool flag(const std::string& name) {
    const Json& value = at(name);
    if (!value.is_boolean()) throw Error(Code::invalid_argument, cat(path(name), " is not true or false"));
    return value.get<bool>();
  }
  /// A plain number.
  double number(const std::string& name, double least, double most) {
    const Json& value = at(name);
    if (!value.is_number() || value.get<double>() < least || value.get<double>() > most)
      throw Error(Code::invalid_argument, cat(path(name), " is no number from ", least, " to ", most));
    return value.get<double>();
  }
  double count(const std::string& name, double most) {
    const double value = number(name, 1, most);
    if (value != std::floor(value)) throw Error(Code::invalid_argument, cat(path(name), " is no whole number"));
    return value;
  }

 private:
  void note(const std::string& name) {
    if (std::find(read_.begin(), read_.end(), name) == read_.end()) read_.push_back(name);
  }
  [[noreturn]] void fail(const char* what) const { throw Error(Code::invalid_argument, cat(where_, " ", what)); }

  const Json& object_;
  const std::string where_;
  std::vector<std::string> read_;
};

DeviceSpeed read_device(const Json& json) {
  Fields fields(json, "device");
  DeviceSpeed out;
  out.memory_bytes = positive(fields.quantity("memory", Unit::bytes), fields.path("memory"));
  out.bandwidth = fields.speed("bandwidth", Unit::bytes_per_second, Unit::bytes);
  out.launch_s = fields.quantity("launch", Unit::seconds);
  const Json& peak = fields.at("peak");
  Fields types(peak, "device, field \"peak\"");
  for (const auto& [name, value] : peak.items()) {
    const DType dtype = dtype_from_name(name);
    if (!is_float(dtype)) throw Error(Code::invalid_argument, cat(types.path(name), " is no type of floats"));
    out.peak[dtype] = types.speed(name, Unit::flops_per_second, Unit::count);
  }
  if (out.peak.empty()) throw Error(Code::invalid_argument, "device, field \"peak\" is empty");
  const bool by_size =
      std::all_of(out.peak.begin(), out.peak.end(), [](const auto& one) { return one.second.points().size() > 1; });
  if (fields.has("efficiency") || !by_size) {
    Fields efficiency(fields.at("efficiency"), "device, field \"efficiency\"");
    out.most = positive(efficiency.number("most", 0, 1), efficiency.path("most"));
    out.knee = efficiency.number("knee", 0, 1e6);
    efficiency.finish();
  }
  if (fields.has("processors")) out.processors = fields.count("processors", 1e6);
  if (fields.has("score_passes")) out.score_passes = fields.number("score_passes", 0, 100);
  if (fields.has("fused_sums")) out.fused_sums = fields.flag("fused_sums");
  fields.finish();
  return out;
}

LinkLevel read_level(const Json& json, size_t index) {
  Fields fields(json, cat("levels[", index, "]"));
  LinkLevel out;
  out.name = fields.text("name");
  if (fields.has("ranks")) out.ranks = static_cast<int64_t>(fields.count("ranks", 1e9));
  out.bandwidth = positive(fields.quantity("bandwidth", Unit::bytes_per_second), fields.path("bandwidth"));
  out.latency_s = fields.quantity("latency", Unit::seconds);
  const std::string use = fields.text("use");
  if (use != "device" && use != "shared")
    throw Error(Code::invalid_argument,
                cat(fields.path("use"), " is ", quote(use), ", expected \"device\" or \"shared\""));
  out.shared = use == "shared";
  fields.finish();
  return out;
}

Json speed_json(const Speed& speed, Unit unit, Unit size_unit) {
  if (speed.points().size() == 1) return quantity_text(speed.points()[0].speed, unit);
  Json out = Json::object();
  for (const Speed::Point& point : speed.points())
    out[quantity_text(point.size, size_unit)] = quantity_text(point.speed, unit);
  return out;
}

}  // namespace

Machine parse_machine(std::string_view json) {
  // A field that is given twice: the parser would keep the last.
  std::vector<std::set<std::string>> open;
  std::string twice;
  const Json file = Json::parse(
      json,
      [&](int, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        if (event == Json::parse_event_t::object_end) open.pop_back();
        if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
          twice = parsed.get<std::string>();
        return true;
      },
      false);
  if (!twice.empty())
    throw Error(Code::invalid_argument, cat("the machine's file has the field ", quote(twice), " twice"));
  if (file.is_discarded()) throw Error(Code::invalid_argument, "the machine's file is no JSON");
  Fields fields(file, "the machine's file");
  Machine out;
  out.name = fields.text("name");
  out.about = fields.text("about");
  out.device = read_device(fields.at("device"));
  const Json& levels = fields.at("levels");
  if (!levels.is_array()) throw Error(Code::invalid_argument, cat(fields.path("levels"), " is no list"));
  for (size_t i = 0; i < levels.size(); ++i) {
    out.levels.push_back(read_level(levels[i], i));
    const bool last = i + 1 == levels.size();
    const int64_t ranks = out.levels[i].ranks, below = i ? out.levels[i - 1].ranks : 1;
    if ((ranks == 0 && !last) || (ranks && (ranks < below || ranks % below)))
      throw Error(Code::invalid_argument,
                  cat("levels[", i, "], field \"ranks\": ", ranks, " ranks around groups of ", below),
                  "a level has whole groups of the level before it; only the last may have no limit");
  }
  fields.finish();
  return out;
}

Machine open_machine(const std::string& name_or_path) {
  std::vector<std::string> names;
  for (const MachineFile& file : machine_files()) {
    if (file.name == name_or_path) return parse_machine(file.text);
    names.emplace_back(file.name);
  }
  std::shared_ptr<const Blob> bytes;
  try {
    bytes = map_file(name_or_path);
  } catch (const Error& error) {
    throw Error(error.code(),
                cat("no machine comes along as ", quote(name_or_path), ", and as a file: ", error.message()),
                cat("those that come along: ", join(names, ", ")));
  }
  try {
    return parse_machine({reinterpret_cast<const char*>(bytes->data()), static_cast<size_t>(bytes->size())});
  } catch (const Error& error) {
    throw error.at(quote(name_or_path));
  }
}

std::string machine_json(const Machine& machine) {
  const DeviceSpeed& device = machine.device;
  Json peak = Json::object(), levels = Json::array();
  for (const auto& [dtype, value] : device.peak)
    peak[std::string(dtype_name(dtype))] = speed_json(value, Unit::flops_per_second, Unit::count);
  for (const LinkLevel& level : machine.levels) {
    Json one = {{"name", level.name}};
    if (level.ranks) one["ranks"] = level.ranks;
    one["bandwidth"] = quantity_text(level.bandwidth, Unit::bytes_per_second);
    one["latency"] = quantity_text(level.latency_s, Unit::seconds);
    one["use"] = level.shared ? "shared" : "device";
    levels.push_back(std::move(one));
  }
  Json out = {{"name", machine.name},
              {"about", machine.about},
              {"device",
               {{"memory", quantity_text(device.memory_bytes, Unit::bytes)},
                {"bandwidth", speed_json(device.bandwidth, Unit::bytes_per_second, Unit::bytes)},
                {"launch", quantity_text(device.launch_s, Unit::seconds)},
                {"peak", std::move(peak)},
                {"efficiency", {{"most", device.most}, {"knee", device.knee}}},
                {"score_passes", device.score_passes},
                {"fused_sums", device.fused_sums}}},
              {"levels", std::move(levels)}};
  if (device.processors > 0) out["device"]["processors"] = device.processors;
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace plait
