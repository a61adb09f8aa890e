#include "core/base/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file_writer.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace plait {
namespace {

using Json = nlohmann::json;

constexpr std::string_view metadata_key = "__metadata__";
constexpr size_t length_bytes = 8;              // size of the length field
constexpr uint64_t header_limit = 100'000'000;  // the limit of the format's own library

constexpr std::pair<std::string_view, DType> dtypes[] = {
    {"F64", DType::f64},          {"F32", DType::f32},        {"F16", DType::f16},     {"BF16", DType::bf16},
    {"I64", DType::i64},          {"I32", DType::i32},        {"I16", DType::i16},     {"I8", DType::i8},
    {"U64", DType::u64},          {"U32", DType::u32},        {"U16", DType::u16},     {"U8", DType::u8},
    {"F8_E4M3", DType::f8e4m3fn}, {"F8_E5M2", DType::f8e5m2}, {"BOOL", DType::boolean}};

/// Parses the header of an untrusted file. Refuses duplicate names (the first would be lost) and deep nesting (the
/// tree is many times the text's size) while parsing.
Json parse_header(std::string_view text) {
  std::vector<std::set<std::string>> names;  // of each open object
  auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 3) throw Error(Code::bad_model, "its header is nested too deeply");
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    else if (event == Json::parse_event_t::object_end) names.pop_back();
    else if (event == Json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second)
      throw Error(Code::bad_model, cat("its header has ", quote(parsed.get<std::string>()), " twice"));
    return true;
  };
  try {
    Json out = Json::parse(text, look);
    if (!out.is_object()) throw Error(Code::bad_model, "its header is no JSON object");
    return out;
  } catch (const Json::exception& error) {
    throw Error(Code::bad_model, cat("its header is not JSON: ", quote(error.what())));
  }
}

/// A list of integers from 0 on; throws otherwise.
std::vector<int64_t> sizes_of(const Json& row, const char* key) {
  auto found = row.find(key);
  auto bad = [&] { return Error(Code::bad_model, cat("its ", key, " is no list of sizes")); };
  if (found == row.end() || !found->is_array()) throw bad();
  std::vector<int64_t> out;
  for (const Json& size : *found) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{INT64_MAX}) throw bad();
    out.push_back(size.get<int64_t>());
  }
  return out;
}

/// One row of the header; the tensors begin at `data` in the file and have `bytes` bytes.
SafeTensors::Entry read_entry(const Json& row, int64_t data, int64_t bytes) {
  if (!row.is_object() || !row.contains("dtype") || !row["dtype"].is_string())
    throw Error(Code::bad_model, "it has no dtype");
  const auto name = row["dtype"].get<std::string>();
  auto known = std::find_if(std::begin(dtypes), std::end(dtypes), [&](const auto& one) { return one.first == name; });
  if (known == std::end(dtypes)) throw Error(Code::unsupported, cat("its dtype ", quote(name), " is not supported"));
  SafeTensors::Entry out;
  out.dtype = known->second;
  const std::vector<int64_t> sizes = sizes_of(row, "shape");
  out.shape = Shape(sizes);
  const int64_t elements = checked_elements(sizes, dtype_bits(out.dtype));
  out.bytes = packed_bytes(elements, dtype_bits(out.dtype));
  const std::vector<int64_t> range = sizes_of(row, "data_offsets");
  if (range.size() != 2 || range[0] > range[1] || range[1] > bytes)
    throw Error(Code::bad_model, cat("its data_offsets are outside the file's ", bytes, " bytes of data"));
  if (range[1] - range[0] != out.bytes)
    throw Error(Code::bad_model, cat("it is ", dtype_name(out.dtype), out.shape.text(), ", ", out.bytes,
                                     " bytes, but its data_offsets span ", range[1] - range[0]));
  out.offset = data + range[0];
  return out;
}

/// The format forbids overlaps and gaps.
void check_cover(const std::map<std::string, SafeTensors::Entry>& entries, int64_t begin, int64_t end) {
  std::vector<std::tuple<int64_t, int64_t, std::string>> ranges;
  for (const auto& [name, entry] : entries) ranges.emplace_back(entry.offset, entry.offset + entry.bytes, name);
  std::sort(ranges.begin(), ranges.end());
  for (const auto& [from, to, name] : ranges) {
    if (from != begin)
      throw Error(Code::bad_model, cat("tensor ", quote(name), from < begin ? " overlaps" : " leaves a gap after",
                                       " the tensor before it"));
    begin = to;
  }
  if (begin != end) throw Error(Code::bad_model, cat("it has ", end - begin, " bytes that belong to no tensor"));
}

}  // namespace

SafeTensors SafeTensors::open(const std::string& path, std::optional<uint32_t> checksum) {
  SafeTensors out;
  out.path_ = path;
  out.blob_ = map_file(path);
  const auto size = static_cast<uint64_t>(out.blob_->size());
  try {
    uint64_t length = 0;
    if (size >= length_bytes) std::memcpy(&length, out.blob_->data(), length_bytes);
    if (size < length_bytes || length > size - length_bytes || length > header_limit)
      throw Error(Code::bad_model, "it is truncated, or not a safetensors file");
    out.data_ = static_cast<int64_t>(length_bytes + length);
    if (checksum && crc32c(out.header()) != *checksum)
      throw Error(Code::bad_model, "its header is damaged: it has another checksum");
    const Json header = parse_header({reinterpret_cast<const char*>(out.blob_->data()) + length_bytes, length});
    for (const auto& [name, row] : header.items()) {
      try {
        if (name == metadata_key) out.metadata_ = row.get<std::map<std::string, std::string>>();
        else out.entries_.emplace(name, read_entry(row, out.data_, out.blob_->size() - out.data_));
      } catch (const Json::exception&) {
        throw Error(Code::bad_model, "its metadata is no object of strings");
      } catch (const Error& error) {
        throw error.at(cat("tensor ", quote(name)));
      }
    }
    check_cover(out.entries_, out.data_, out.blob_->size());
  } catch (const Error& error) {
    throw error.at(quote(path, 4096));
  }
  return out;
}

Tensor SafeTensors::tensor(const std::string& name) const {
  auto found = entries_.find(name);
  if (found == entries_.end()) throw Error(Code::not_found, cat(quote(path_, 4096), " has no tensor ", quote(name)));
  return Tensor(found->second.dtype, found->second.shape, blob_, found->second.offset);
}

std::span<const std::byte> SafeTensors::header() const { return {blob_->data(), static_cast<size_t>(data_)}; }

std::string write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return std::pair(-dtype_bits(a.view.dtype), a.name) < std::pair(-dtype_bits(b.view.dtype), b.name);
  });
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  int64_t offset = 0;
  for (const auto& [name, view] : tensors) {
    auto known = std::find_if(std::begin(dtypes), std::end(dtypes),
                              [dtype = view.dtype](const auto& one) { return one.second == dtype; });
    if (known == std::end(dtypes))
      throw Error(Code::unsupported,
                  cat("tensor ", quote(name), ": safetensors has no dtype ", dtype_name(view.dtype)));
    if (name == metadata_key || header.contains(name))
      throw Error(Code::invalid_argument, cat("two tensors of a safetensors file would be called ", quote(name)));
    const std::vector<int64_t> sizes(view.shape.begin(), view.shape.end());
    header[name] = {{"dtype", known->first}, {"shape", sizes}, {"data_offsets", {offset, offset + view.bytes()}}};
    offset += view.bytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    throw Error(Code::invalid_argument, cat("names of a safetensors file have to be UTF-8: ", quote(error.what())));
  }
  text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');
  const uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), length_bytes);
  FileWriter file(path);
  file.write(text);
  for (const NamedTensor& one : tensors)
    file.write(std::span<const std::byte>(one.view.data, static_cast<size_t>(one.view.bytes())));
  file.finish();
  return text;
}

}  // namespace plait
