#include "core/train/checkpoint/checkpoint_manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

using Json = nlohmann::json;

constexpr int64_t version = 1;
constexpr const char* format = "plait checkpoint";
constexpr const char* blocks_key = "plait.blocks";  // in a shard's metadata
constexpr const char* info_key = "plait.checkpoint";

/// CRC of all members but "checksum", in the canonical order and spelling of the JSON library, so indentation does
/// not matter. Readers of any version check it first.
uint32_t checksum_of(Json members) {
  members.erase("checksum");
  return crc32c(members.dump());
}

std::vector<int64_t> list(const Shape& shape) { return {shape.begin(), shape.end()}; }

Shape shape_of(const Json& sizes) {
  const auto out = sizes.get<std::vector<int64_t>>();
  checked_elements(out, 64);
  return Shape(out);
}

DType dtype_of(const Json& name) {
  const DType out = dtype_from_name(name.get<std::string>());
  if (dtype_bits(out) == 0 || dtype_bits(out) % 8)
    throw Error(Code::bad_model, cat("has dtype ", quote(name.dump())));
  return out;
}

Json json_of(const ManifestPiece& piece) {
  return {{"file", piece.file}, {"begin", list(piece.begin)}, {"size", list(piece.size)}, {"crc32c", piece.checksum}};
}

ManifestPiece piece_of(const Json& row) {
  return {row.at("file").get<int64_t>(), shape_of(row.at("begin")), shape_of(row.at("size")),
          row.at("crc32c").get<uint32_t>()};
}

Json json_of(const std::map<std::string, ManifestArray>& arrays) {
  Json out = Json::object();
  for (const auto& [name, array] : arrays) {
    Json pieces = Json::array();
    for (const ManifestPiece& piece : array.pieces) pieces.push_back(json_of(piece));
    out[name] = {{"dtype", dtype_name(array.type.dtype)}, {"shape", list(array.type.shape)}, {"pieces", pieces}};
  }
  return out;
}

std::map<std::string, ManifestArray> arrays_of(const Json& rows) {
  std::map<std::string, ManifestArray> out;
  for (const auto& [name, row] : rows.items()) {
    ManifestArray& array = out[name];
    array.type = {dtype_of(row.at("dtype")), shape_of(row.at("shape"))};
    for (const Json& piece : row.at("pieces")) array.pieces.push_back(piece_of(piece));
  }
  return out;
}

Json json_of(const CheckpointInfo& info) {
  return {{"step", info.step}, {"model", info.model}, {"state", info.state}};
}

CheckpointInfo info_of(const Json& row) {
  return {row.at("step").get<int64_t>(), row.at("model").get<std::string>(),
          row.at("state").get<std::map<std::string, std::string>>()};
}

/// Returns what `body` reads from JSON; JSON errors (wrong type, missing member) become Error(bad_model).
template <class Body>
auto reading(Body body) {
  try {
    return body();
  } catch (const Json::exception& error) {
    throw Error(Code::bad_model, cat("is damaged: ", quote(error.what())));
  }
}

/// JSON texts are UTF-8.
std::string dumped(const Json& json, int indent) {
  try {
    return json.dump(indent);
  } catch (const Json::exception& error) {
    throw Error(Code::invalid_argument, cat("texts of a checkpoint have to be UTF-8: ", quote(error.what())));
  }
}

bool overlap(const ManifestPiece& a, const ManifestPiece& b) {
  for (int dim = 0; dim < a.size.rank(); ++dim)
    if (a.begin[dim] >= b.begin[dim] + b.size[dim] || b.begin[dim] >= a.begin[dim] + a.size[dim]) return false;
  return a.size.elements() > 0 && b.size.elements() > 0;
}

std::string padded(int64_t number, size_t width) {
  std::string out = std::to_string(number);
  if (out.size() < width) out.insert(0, width - out.size(), '0');
  return out;
}

}  // namespace

bool ManifestPiece::lies_within(const Shape& whole) const {
  if (begin.rank() != whole.rank() || size.rank() != whole.rank()) return false;
  for (int dim = 0; dim < whole.rank(); ++dim)
    if (begin[dim] < 0 || begin[dim] > whole[dim] || size[dim] > whole[dim] - begin[dim]) return false;
  return true;
}

std::string Manifest::text() const {
  Json out = json_of(info);
  out["format"] = format;
  out["version"] = version;
  out["files"] = Json::array();
  for (const ManifestFile& file : files)
    out["files"].push_back({{"name", file.name}, {"header_crc32c", file.header}});
  out["arrays"] = json_of(arrays);
  dumped(out, -1);
  out["checksum"] = checksum_of(out);
  return dumped(out, 1) + "\n";
}

Manifest Manifest::parse(std::string_view text) {
  return reading([&] {
    const Json all = Json::parse(text);
    if (!all.is_object() || all.value("format", "") != format)
      throw Error(Code::bad_model, "is no checkpoint's manifest");
    if (all.at("checksum").get<uint32_t>() != checksum_of(all))
      throw Error(Code::bad_model, "is damaged: its checksum is not that of its contents");
    if (auto found = all.at("version").get<int64_t>(); found > version)
      throw Error(Code::unsupported, cat("is of format version ", found, ", and this Plait reads up to ", version),
                  "load it with the version of Plait that wrote it, or a newer one");
    Manifest out;
    out.info = info_of(all);
    for (const Json& file : all.at("files")) {
      const auto name = file.at("name").get<std::string>();
      if (name.find('/') != std::string::npos)
        throw Error(Code::bad_model, cat("names a file elsewhere: ", quote(name)));
      out.files.push_back({name, file.at("header_crc32c").get<uint32_t>()});
    }
    out.arrays = arrays_of(all.at("arrays"));
    for (const auto& [name, array] : out.arrays)
      for (const ManifestPiece& piece : array.pieces)
        if (piece.file < 0 || static_cast<size_t>(piece.file) >= out.files.size())
          throw Error(Code::bad_model, cat("has array ", quote(name), " in a file that it does not list"));
    return out;
  });
}

static void check_cover(const std::string& name, const ManifestArray& array) {
  auto bad = [&](std::string_view what) {
    return Error(Code::invalid_argument,
                 cat("the blocks of array ", quote(name), " ", array.type.shape.text(), " ", what));
  };
  int64_t elements = 0;
  for (auto piece = array.pieces.begin(); piece != array.pieces.end(); ++piece) {
    if (!piece->lies_within(array.type.shape)) throw bad("are outside of it");
    if (std::any_of(array.pieces.begin(), piece, [&](const auto& other) { return overlap(*piece, other); }))
      throw bad("overlap");
    elements += piece->size.elements();
  }
  if (elements != array.type.shape.elements())
    throw bad(cat("have ", elements, " of its ", array.type.shape.elements(), " elements"));
}

void Manifest::check_cover() const {
  for (const auto& [name, array] : arrays) plait::check_cover(name, array);
}

std::string step_name(int64_t step) { return "step-" + padded(step, 6); }

int64_t step_of(std::string_view name) {
  int64_t step = -1;
  return name.starts_with("step-") && parse_int(name.substr(5), step) && step_name(step) == name ? step : -1;
}

std::string shard_name(int64_t writer, int64_t writers) {
  return cat("shard-", padded(writer, 5), "-of-", padded(writers, 5), ".safetensors");
}

std::map<std::string, std::string> shard_metadata(const CheckpointInfo& info,
                                                  const std::map<std::string, ManifestArray>& blocks) {
  return {{info_key, dumped(json_of(info), -1)}, {blocks_key, dumped(json_of(blocks), -1)}};
}

void add_shard(Manifest& manifest, const SafeTensors& shard) {
  const auto& metadata = shard.metadata();
  if (!metadata.contains(info_key) || !metadata.contains(blocks_key))
    throw Error(Code::bad_model, "is no shard of a checkpoint");
  const auto blocks = reading([&] {
    if (metadata.at(info_key) != dumped(json_of(manifest.info), -1))
      throw Error(Code::invalid_argument, "belongs to another step or state than the shard of writer 0");
    return arrays_of(Json::parse(metadata.at(blocks_key)));
  });
  const auto file = static_cast<int64_t>(manifest.files.size());
  manifest.files.push_back({shard.path().substr(shard.path().rfind('/') + 1), crc32c(shard.header())});
  for (const auto& [name, block] : blocks) {
    ManifestArray& array = manifest.arrays.try_emplace(name, ManifestArray{block.type, {}}).first->second;
    if (array.type.dtype != block.type.dtype || !(array.type.shape == block.type.shape))
      throw Error(Code::invalid_argument,
                  cat("has array ", quote(name), " as ", dtype_name(block.type.dtype), block.type.shape.text(),
                      ", others as ", dtype_name(array.type.dtype), array.type.shape.text()));
    for (ManifestPiece piece : block.pieces) {
      piece.file = file;
      array.pieces.push_back(piece);
    }
  }
}

}  // namespace plait
