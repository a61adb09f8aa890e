#pragma once
// Serialisation of commands and reports: a struct lists its fields once, for writer and reader.
//
//     struct Update {
//       double scale = 1, rate = 0;
//       auto fields() { return std::tie(scale, rate); }
//     };
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/tensor.h"

namespace plait {

/// Serialises a value. The default: a struct by its fields, other types by their object bytes.
template <class T>
struct MessageField {
  static constexpr bool is_struct = requires(T & value) { value.fields(); };
  static_assert(is_struct || std::is_trivially_copyable_v<T>,
                "a message's fields are structs with fields(), or plain");

  static void put(ByteWriter& out, const T& value) {
    if constexpr (is_struct)
      std::apply([&](const auto&... field) { (MessageField<std::remove_cvref_t<decltype(field)>>::put(out, field), ...); },
                 const_cast<T&>(value).fields());
    else if constexpr (!std::is_empty_v<T>) out.put(value);
  }
  static void get(ByteReader& in, T& value) {
    if constexpr (is_struct)
      std::apply([&](auto&... field) { (MessageField<std::remove_cvref_t<decltype(field)>>::get(in, field), ...); },
                 value.fields());
    else if constexpr (!std::is_empty_v<T>) value = in.get<T>();
  }
};

template <>
struct MessageField<std::string> {
  static void put(ByteWriter& out, const std::string& value) { out.put_text(value); }
  static void get(ByteReader& in, std::string& value) { value = in.get_text(); }
};

template <class T>
struct MessageField<std::vector<T>> {
  static constexpr bool is_plain = std::is_trivially_copyable_v<T> && !std::is_same_v<T, TensorView>;

  static void put(ByteWriter& out, const std::vector<T>& values) {
    if constexpr (is_plain) return out.put_list(values);
    out.put(static_cast<uint64_t>(values.size()));
    for (const T& value : values) MessageField<T>::put(out, value);
  }
  static void get(ByteReader& in, std::vector<T>& values) {
    if constexpr (is_plain) {
      values = in.get_list<T>();
    } else {
      values.clear();
      for (auto left = in.get<uint64_t>(); left > 0; --left) MessageField<T>::get(in, values.emplace_back());
    }
  }
};

/// Written as a vector; read, for bytes, as a view of the message.
template <class T>
struct MessageField<std::span<T>> {
  static void put(ByteWriter& out, std::span<T> values) { out.put_list(std::span<const T>(values)); }
  static void get(ByteReader& in, std::span<T>& values) {
    static_assert(std::is_same_v<T, const std::byte>, "elements of other types need not be aligned in a message");
    values = in.get_span(in.get<uint64_t>());
  }
};

template <class Value, class Compare>
struct MessageField<std::map<std::string, Value, Compare>> {
  using Map = std::map<std::string, Value, Compare>;
  static void put(ByteWriter& out, const Map& values) {
    out.put(static_cast<uint64_t>(values.size()));
    for (const auto& [name, value] : values) {
      out.put_text(name);
      MessageField<Value>::put(out, value);
    }
  }
  static void get(ByteReader& in, Map& values) {
    values.clear();
    for (auto left = in.get<uint64_t>(); left > 0; --left) MessageField<Value>::get(in, values[in.get_text()]);
  }
};

/// Written with its elements; read as a view of the message.
template <>
struct MessageField<TensorView> {
  static void put(ByteWriter& out, const TensorView& view) {
    out.put(view.dtype);
    out.put(view.shape);
    out.put_bytes(view.data, static_cast<size_t>(view.bytes()));
  }
  static void get(ByteReader& in, TensorView& view) {
    view.dtype = in.get<DType>();
    view.shape = in.get<Shape>();
    view.data = const_cast<std::byte*>(in.get_span(static_cast<size_t>(view.bytes())).data());
  }
};

template <class... Ts>
void put_fields(ByteWriter& out, const Ts&... values) {
  (MessageField<Ts>::put(out, values), ...);
}

template <class T>
T get_field(ByteReader& in) {
  T out{};
  MessageField<T>::get(in, out);
  return out;
}

}  // namespace plait
