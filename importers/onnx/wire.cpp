#include "importers/onnx/wire.h"

#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::onnx_import {
namespace {

// clang-format off
enum class Kind : uint8_t {
  keep, drop, raw, scopes,
  model, graph, node, attribute, tensor, function, sparse, devices, spec, axis,
  value, type, element, mapped, tensor_type, shape, leaf
};

struct Rule {
  Kind message;
  uint32_t field;
  Kind action;  ///< a message kind: visit it; scopes: keep only the module scopes of a node
};

// Unlisted fields are kept; repeated messages are listed, since they count towards the limit. Numbers are those of
// onnx-ml.proto.
constexpr Rule rules[] = {
    {Kind::model, 6, Kind::drop},       // doc_string
    {Kind::model, 7, Kind::graph},      //
    {Kind::model, 8, Kind::leaf},       // opset_import
    {Kind::model, 14, Kind::leaf},      // metadata_props
    {Kind::model, 20, Kind::drop},      // training_info
    {Kind::model, 25, Kind::function},  //
    {Kind::model, 26, Kind::leaf},      // configuration
    {Kind::graph, 1, Kind::node},       //
    {Kind::graph, 5, Kind::tensor},     //
    {Kind::graph, 10, Kind::drop},      // doc_string
    {Kind::graph, 11, Kind::value},     // input
    {Kind::graph, 12, Kind::value},     // output
    {Kind::graph, 13, Kind::drop},      // value_info
    {Kind::graph, 14, Kind::drop},      // quantization_annotation
    {Kind::graph, 15, Kind::sparse},    //
    {Kind::graph, 16, Kind::drop},      // metadata_props
    {Kind::node, 5, Kind::attribute},   //
    {Kind::node, 6, Kind::drop},        // doc_string
    {Kind::node, 9, Kind::scopes},      // metadata_props
    {Kind::node, 10, Kind::devices},    //
    {Kind::devices, 2, Kind::spec},     //
    {Kind::spec, 3, Kind::leaf},        // index_to_device_group_map
    {Kind::spec, 4, Kind::axis},        //
    {Kind::axis, 2, Kind::leaf},        // simple_sharding
    {Kind::attribute, 5, Kind::tensor},
    {Kind::attribute, 6, Kind::graph},
    {Kind::attribute, 10, Kind::tensor},
    {Kind::attribute, 11, Kind::graph},
    {Kind::attribute, 14, Kind::type},
    {Kind::attribute, 15, Kind::type},
    {Kind::attribute, 13, Kind::drop},  // doc_string
    {Kind::attribute, 22, Kind::sparse},
    {Kind::attribute, 23, Kind::sparse},
    {Kind::tensor, 9, Kind::raw},
    {Kind::tensor, 12, Kind::drop},     // doc_string
    {Kind::tensor, 13, Kind::leaf},     // external_data
    {Kind::tensor, 16, Kind::drop},     // metadata_props
    {Kind::sparse, 1, Kind::tensor},
    {Kind::sparse, 2, Kind::tensor},
    {Kind::function, 7, Kind::node},
    {Kind::function, 8, Kind::drop},    // doc_string
    {Kind::function, 9, Kind::leaf},    // opset_import
    {Kind::function, 11, Kind::attribute},
    {Kind::function, 12, Kind::drop},   // value_info
    {Kind::function, 14, Kind::drop},   // metadata_props
    {Kind::value, 2, Kind::type},
    {Kind::value, 3, Kind::drop},       // doc_string
    {Kind::value, 4, Kind::drop},       // metadata_props
    {Kind::type, 1, Kind::tensor_type},
    {Kind::type, 4, Kind::element},     // of a sequence
    {Kind::type, 5, Kind::mapped},
    {Kind::type, 8, Kind::tensor_type}, // sparse
    {Kind::type, 9, Kind::element},     // of an optional
    {Kind::element, 1, Kind::type},
    {Kind::mapped, 2, Kind::type},
    {Kind::tensor_type, 2, Kind::shape},
    {Kind::shape, 1, Kind::leaf},       // a dimension
};
// clang-format on

Kind action_of(Kind message, uint32_t field) {
  for (const Rule& rule : rules)
    if (rule.message == message && rule.field == field) return rule.action;
  return Kind::keep;
}

constexpr int max_depth = 100;
// An empty message takes 2 bytes of a file and about 200 of memory; the largest models have a tenth of these.
constexpr int64_t max_messages = 2'000'000;
constexpr int64_t max_fields = 16'000'000;
constexpr uint32_t length_delimited = 2;

void append_varint(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<char>(number | 0x80));
  out.push_back(static_cast<char>(number));
}

class Slimmer {
 public:
  /// `change` null: makes the slim copy.
  Slimmer(std::span<const std::byte> file, const ModelChange* change)
      : data_(reinterpret_cast<const uint8_t*>(file.data())),
        size_(static_cast<int64_t>(file.size())),
        change_(change) {}

  std::string run() {
    std::string out;
    message(Kind::model, 0, size_, 0, out);
    return out;
  }

  std::string fields(const std::set<uint32_t>& wanted) const {
    std::string out;
    each_field(0, size_, [&](const Field& field) {
      if (wanted.contains(field.number)) out += text(field.start, field.end);
    });
    return out;
  }

 private:
  struct Field {
    uint32_t number, wire_type;
    int64_t start, begin, end;  ///< of its tag, of its content
  };

  [[noreturn]] static void fail(int64_t at, std::string_view what) {
    throw Error(Code::bad_model, cat("not a valid ONNX file: ", what, " at byte ", at),
                "the file is truncated, damaged, or of another format; fetch or export it again");
  }

  uint64_t varint(int64_t& at, int64_t end) const {
    uint64_t out = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= end) fail(at, "a number runs past the end of its message");
      uint8_t byte = data_[at++];
      out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return out;
    }
    fail(at, "a number of more than 10 bytes");
  }

  /// Skips the value of a field that starts at `at`; `begin` and the result delimit its content.
  int64_t skip(uint32_t wire_type, int64_t& begin, int64_t end) const {
    int64_t at = begin, fixed = wire_type == 1 ? 8 : 4;
    switch (wire_type) {
      case 0: varint(at, end); return at;
      case 1:
      case 5:
        if (end - at < fixed) fail(at, "a number runs past the end of its message");
        return at + fixed;
      case length_delimited: {
        uint64_t length = varint(at, end);
        if (length > static_cast<uint64_t>(end - at))
          fail(at, cat("a field of ", length, " bytes where ", end - at, " are left"));
        begin = at;
        return at + static_cast<int64_t>(length);
      }
      default: fail(at, cat("a field of wire type ", wire_type));
    }
  }

  Field field_at(int64_t start, int64_t end) const {
    int64_t at = start;
    const uint64_t tag = varint(at, end);
    if (tag >> 3 == 0 || tag > std::numeric_limits<uint32_t>::max()) fail(start, "a bad field number");
    Field out{static_cast<uint32_t>(tag >> 3), static_cast<uint32_t>(tag & 7), start, at, 0};
    out.end = skip(out.wire_type, out.begin, end);
    return out;
  }
  template <class Visit>
  void each_field(int64_t begin, int64_t end, const Visit& visit) const {
    for (int64_t at = begin; at < end;) {
      const Field field = field_at(at, end);
      visit(field);
      at = field.end;
    }
  }
  std::string_view text(int64_t begin, int64_t end) const {
    return {reinterpret_cast<const char*>(data_) + begin, static_cast<size_t>(end - begin)};
  }

  /// The names of a graph's initializers, inputs and nodes' outputs.
  std::set<std::string_view> names_of(int64_t begin, int64_t end) const {
    std::set<std::string_view> out;
    each_field(begin, end, [&](const Field& part) {
      const uint32_t name = part.number == 5 ? 8 : part.number == 11 ? 1 : part.number == 1 ? 2 : 0;
      if (!name || part.wire_type != length_delimited) return;
      each_field(part.begin, part.end, [&](const Field& field) {
        if (field.number == name && field.wire_type == length_delimited) out.insert(text(field.begin, field.end));
      });
    });
    return out;
  }

  /// Whether GraphBuilder reads this StringStringEntryProto of a node.
  bool is_scopes(const Field& entry) const {
    bool out = false;
    each_field(entry.begin, entry.end, [&](const Field& field) {
      const bool is_key = field.number == 1 && field.wire_type == length_delimited;
      out = out || (is_key && text(field.begin, field.end) == scopes_key);
    });
    return out;
  }

  /// Appends the slim form of the message of `kind` in [begin, end).
  void message(Kind kind, int64_t begin, int64_t end, int depth, std::string& out) {
    if (depth > max_depth) fail(begin, cat("messages nested more than ", max_depth, " deep"));
    if (++messages_ > max_messages) fail(begin, cat("more than ", max_messages, " messages"));
    int64_t at = begin, kept = begin;  // [kept, at) is copied unchanged
    auto flush = [&](int64_t up_to) {
      if (up_to - kept > std::numeric_limits<int32_t>::max() - static_cast<int64_t>(out.size()))
        throw Error(Code::unsupported, "the file has more than 2 GiB in addition to raw tensor data",
                    "store the tensors as raw or external data");
      out.append(reinterpret_cast<const char*>(data_) + kept, static_cast<size_t>(up_to - kept));
    };
    while (at < end) {
      const Field field = field_at(at, end);
      at = field.end;
      const bool left_out = kind == Kind::model && change_ && change_->left_out.contains(field.number);
      if (field.wire_type != length_delimited && !left_out) continue;
      if (++fields_ > max_fields) fail(field.start, cat("more than ", max_fields, " fields"));
      Kind action = left_out ? Kind::drop : action_of(kind, field.number);
      if (action == Kind::scopes) action = !change_ && is_scopes(field) ? Kind::leaf : Kind::drop;
      if (action == Kind::keep || (action == Kind::drop && change_ && !left_out)) continue;
      flush(field.start);
      kept = field.end;
      if (action == Kind::drop) continue;
      replace(kind, action, field, depth, out);
    }
    flush(end);
  }

  void replace(Kind parent, Kind action, const Field& field, int depth, std::string& out) {
    std::string inner;
    if (action == Kind::raw) {
      RawRange range{field.begin, field.end - field.begin};
      inner.assign(reinterpret_cast<const char*>(&range), sizeof range);
    } else {
      const bool body = action == Kind::graph && parent == Kind::attribute && changes_nodes();
      if (body) bodies_.push_back(names_of(field.begin, field.end));
      in_function_ = in_function_ || action == Kind::function;
      message(action, field.begin, field.end, depth + 1, inner);
      if (action == Kind::function) in_function_ = false;
      if (body) bodies_.pop_back();
    }
    if (action == Kind::tensor && change_)
      inner = change_->tensor(std::move(inner),
                              parent == Kind::graph ? TensorPlace::initializer : TensorPlace::elsewhere);
    if (action == Kind::node && changes_nodes()) inner = change_->node(std::move(inner), bodies_);
    const bool may_go = change_ && (action == Kind::tensor || action == Kind::node);
    if (may_go && inner.empty()) return;
    append_varint(out, uint64_t{field.number} << 3 | field.wire_type);
    append_varint(out, inner.size());
    out += inner;
  }

  /// Names in a function are resolved by its caller.
  bool changes_nodes() const { return change_ && change_->node && !in_function_; }

  const uint8_t* data_;
  int64_t size_;
  const ModelChange* change_;
  BodyNames bodies_;          ///< around the current message
  bool in_function_ = false;  ///< whether the current message is
  int64_t messages_ = 0;
  int64_t fields_ = 0;
};

}  // namespace

std::string slim_model(std::span<const std::byte> file) { return Slimmer(file, nullptr).run(); }

std::string changed_model(std::span<const std::byte> file, const ModelChange& change) {
  return Slimmer(file, &change).run();
}

std::string model_fields(std::span<const std::byte> file, const std::set<uint32_t>& fields) {
  return Slimmer(file, nullptr).fields(fields);
}

RawRange raw_range(std::string_view reference) {
  RawRange range;
  PLAIT_ASSERT(reference.size() == sizeof range);
  std::memcpy(&range, reference.data(), sizeof range);
  return range;
}

}  // namespace plait::onnx_import
