#include "importers/onnx/tensor_reader.h"

#include <onnx-ml.pb.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/base/text.h"
#include "importers/onnx/typed_data.h"
#include "importers/onnx/wire.h"

namespace plait::onnx_import {
namespace {

struct ExternalEntry {
  std::string location;
  int64_t offset = 0;
  int64_t length = -1;  ///< -1: of the tensor, if there is an offset, otherwise the file's
  bool has_offset = false;
};

int64_t decimal(const std::string& key, const std::string& text) {
  int64_t out = 0;
  bool digits = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !parse_int(text, out))
    throw Error(Code::bad_model, cat("external data ", key, " ", quote(text),
                                     " is not a non-negative number of 63 bits"));
  return out;
}

/// Checks, without the file system, for a relative POSIX path inside a directory.
void check_location(const std::string& location) {
  auto refuse = [&](std::string_view why) {
    return Error(Code::bad_model, cat("external data location ", quote(location), " ", why),
                 "external data must be in the model file's directory or below it");
  };
  if (location.empty()) throw refuse("is empty");
  if (location.find('\0') != std::string::npos) throw refuse("holds a NUL");
  if (location.find("_ORT_MEM_ADDR_") != std::string::npos) throw refuse("means memory of another process");
  bool drive = location.size() > 1 && location[1] == ':';
  if (location.front() == '/' || location.find('\\') != std::string::npos || drive)
    throw refuse("is not a relative POSIX path");
  for (const auto& part : split(location, '/'))
    if (part == "..") throw refuse("leaves the model's directory");
}

ExternalEntry external_entry(const onnx::TensorProto& proto) {
  std::map<std::string, std::string> items;
  for (const auto& item : proto.external_data())
    if (!items.emplace(item.key(), item.value()).second)
      throw Error(Code::bad_model, cat("external data names ", quote(item.key()), " twice"));
  ExternalEntry out;
  if (!items.count("location")) throw Error(Code::bad_model, "external data has no location");
  out.location = items["location"];
  check_location(out.location);
  out.has_offset = items.count("offset") > 0;
  if (out.has_offset) out.offset = decimal("offset", items["offset"]);
  if (items.count("length")) out.length = decimal("length", items["length"]);
  return out;  // "checksum", "basepath" and others are ignored
}

/// The names of the non-empty data fields.
std::vector<std::string> data_fields(const onnx::TensorProto& proto) {
  std::vector<std::string> out;
  if (proto.float_data_size()) out.emplace_back("float_data");
  if (proto.int32_data_size()) out.emplace_back("int32_data");
  if (proto.string_data_size()) out.emplace_back("string_data");
  if (proto.int64_data_size()) out.emplace_back("int64_data");
  if (proto.double_data_size()) out.emplace_back("double_data");
  if (proto.uint64_data_size()) out.emplace_back("uint64_data");
  if (proto.has_raw_data()) out.emplace_back("raw_data");
  if (proto.external_data_size()) out.emplace_back("external_data");
  return out;
}

Tensor part_of(const std::shared_ptr<const Blob>& blob, int64_t offset, int64_t size, DType dtype, const Shape& shape,
               std::string_view field) {
  int64_t wanted = packed_bytes(shape.elements(), dtype_bits(dtype));
  if (size != wanted)
    throw Error(Code::bad_model, cat(dtype_name(dtype), shape.text(), " needs ", wanted, " bytes, ", field, " has ",
                                     size));
  return Tensor(dtype, shape, blob, offset);
}

/// Strings are in a field of their own, never raw or external.
Tensor string_tensor(const onnx::TensorProto& proto, const Shape& shape, std::string_view used) {
  if (!used.empty() && used != "string_data")
    throw Error(Code::bad_model, cat(used, " is set, but string elements are stored in string_data"));
  if (proto.string_data_size() != shape.elements())
    throw Error(Code::bad_model, cat("string", shape.text(), " needs ", shape.elements(), " strings in string_data, there are ",
                                     proto.string_data_size()));
  const std::vector<std::string_view> texts(proto.string_data().begin(), proto.string_data().end());
  return packed_strings(shape, texts);
}

/// C++ code may read a bool's byte as a bool: values other than 0 and 1 would be undefined behaviour.
void check_bools(const Tensor& tensor) {
  auto* bytes = tensor.as<uint8_t>();
  if (std::any_of(bytes, bytes + tensor.elements(), [](uint8_t byte) { return byte > 1; }))
    throw Error(Code::bad_model, "a bool element is neither 0 nor 1");
}

}  // namespace

DType dtype_of(int64_t data_type) {
  if (data_type == 0) throw Error(Code::bad_model, "the element type is undefined");
  if (data_type < 0 || data_type > static_cast<int64_t>(DType::i2))
    throw Error(Code::bad_model, cat("element type ", data_type, " is not known"),
                "the file may be newer than Plait");
  return static_cast<DType>(data_type);
}

Shape shape_of(std::span<const int64_t> sizes, DType dtype) {
  if (sizes.size() > static_cast<size_t>(Shape::max_rank))
    throw Error(Code::unsupported, cat("rank ", sizes.size(), " is above ", Shape::max_rank));
  checked_elements(sizes, dtype_bits(dtype));
  return Shape(sizes);
}

Tensor TensorReader::read(const onnx::TensorProto& proto) {
  auto found = done_.find(&proto);
  if (found == done_.end()) found = done_.emplace(&proto, convert(proto)).first;
  return found->second;
}

Tensor TensorReader::convert(const onnx::TensorProto& proto) {
  DType dtype = dtype_of(proto.data_type());
  if (proto.has_segment()) throw Error(Code::unsupported, "tensors stored in segments");
  Shape shape = shape_of({proto.dims().data(), static_cast<size_t>(proto.dims_size())}, dtype);
  std::vector<std::string> fields = data_fields(proto);
  if (fields.size() > 1)
    throw Error(Code::bad_model, cat("more than one data field is set: ", join(fields, ", ")));
  bool is_external = proto.data_location() == onnx::TensorProto::EXTERNAL;
  if (is_external != (proto.external_data_size() > 0))
    throw Error(Code::bad_model, is_external ? "data_location is EXTERNAL, but external_data is empty"
                                             : "external_data is set, but data_location is not EXTERNAL");
  Tensor out;
  if (dtype == DType::string) {
    out = string_tensor(proto, shape, fields.empty() ? "" : fields.front());
  } else if (is_external) {
    out = external(proto, dtype, shape);
  } else if (proto.has_raw_data()) {
    RawRange range = raw_range(proto.raw_data());
    out = part_of(file_, range.offset, range.size, dtype, shape, "raw_data");
  } else {
    out = typed_tensor(proto, dtype, shape, fields.empty() ? "" : fields.front());
  }
  if (dtype == DType::boolean) check_bools(out);
  return out;
}

Tensor TensorReader::external(const onnx::TensorProto& proto, DType dtype, const Shape& shape) {
  ExternalEntry entry = external_entry(proto);
  const auto& blob = open(entry.location);
  if (entry.offset > blob->size())
    throw Error(Code::bad_model, cat("external data begins at byte ", entry.offset, " of ", quote(entry.location),
                                     ", which has ", blob->size()), "the file may be truncated");
  int64_t left = blob->size() - entry.offset;
  // With an offset and no length it is the tensor's, as in ONNX Runtime: other tensors may follow in the file.
  const int64_t whole = entry.has_offset ? packed_bytes(shape.elements(), dtype_bits(dtype)) : left;
  int64_t length = entry.length < 0 ? whole : entry.length;
  if (length > left)
    throw Error(Code::bad_model, cat("external data of ", length, " bytes at byte ", entry.offset, " of ",
                                     quote(entry.location), " runs past its end at ", blob->size()),
                "the file may be truncated");
  return part_of(blob, entry.offset, length, dtype, shape, cat("external data in ", quote(entry.location)));
}

const std::shared_ptr<const Blob>& TensorReader::open(const std::string& location) {
  std::string normal = std::filesystem::path(location).lexically_normal().string();
  auto& blob = opened_[normal];
  if (!blob && resolver_) blob = resolver_(normal);
  if (!blob)
    throw Error(Code::not_found, cat("external data file ", quote(location), " is not there"),
                "give it to the resolver, or load the model from its file");
  return blob;
}

}  // namespace plait::onnx_import
