#include "importers/gguf/gguf_file.h"

#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::gguf {
namespace {

constexpr std::string_view magic = "GGUF";
constexpr int64_t longest_text = int64_t{1} << 30;

/// The kinds of values, by the format's numbers.
enum Kind : uint32_t { k_u8, k_i8, k_u16, k_i16, k_u32, k_i32, k_f32, k_bool, k_text, k_array, k_u64, k_i64, k_f64 };

/// Reads forwards, never beyond the end.
class Reader {
 public:
  explicit Reader(const Blob& blob) : data_(blob.data()), size_(blob.size()) {}

  int64_t at() const { return at_; }
  int64_t left() const { return size_ - at_; }
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(Code::bad_model, cat("it is a damaged GGUF file: ", what, " at byte ", at_),
                "download it again, and compare its checksum");
  }
  template <class T>
  T number(std::string_view what) {
    if (left() < static_cast<int64_t>(sizeof(T))) fail(cat(what, " is cut off"));
    T out;
    std::memcpy(&out, data_ + at_, sizeof out);
    at_ += static_cast<int64_t>(sizeof out);
    return out;
  }
  std::string text(std::string_view what) {
    const auto length = number<uint64_t>(what);
    if (length > static_cast<uint64_t>(std::min(left(), longest_text))) fail(cat(what, " is cut off"));
    std::string out(reinterpret_cast<const char*>(data_ + at_), length);
    at_ += static_cast<int64_t>(length);
    return out;
  }
  /// A count of things of which each takes at least so many bytes.
  int64_t count(std::string_view what, int64_t least_bytes) {
    const auto out = number<uint64_t>(what);
    if (out > static_cast<uint64_t>(left() / least_bytes))
      fail(cat(what, " is ", out, ", more than there is space for"));
    return static_cast<int64_t>(out);
  }

 private:
  const std::byte* data_;
  int64_t size_, at_ = 0;
};

int64_t integer_of(Reader& from, uint32_t kind, const std::string& key) {
  switch (kind) {
    case k_u8: return from.number<uint8_t>(key);
    case k_i8: return from.number<int8_t>(key);
    case k_u16: return from.number<uint16_t>(key);
    case k_i16: return from.number<int16_t>(key);
    case k_u32: return from.number<uint32_t>(key);
    case k_i32: return from.number<int32_t>(key);
    case k_bool: return from.number<uint8_t>(key) != 0;
    case k_u64: return static_cast<int64_t>(from.number<uint64_t>(key));
    case k_i64: return from.number<int64_t>(key);
    default: from.fail(cat("the kind ", kind, " of ", quote(key)));
  }
}

bool is_real(uint32_t kind) { return kind == k_f32 || kind == k_f64; }
double real_of(Reader& from, uint32_t kind, const std::string& key) {
  return kind == k_f32 ? static_cast<double>(from.number<float>(key)) : from.number<double>(key);
}

Value array_of(Reader& from, const std::string& key) {
  const auto kind = from.number<uint32_t>(key);
  const int64_t count = from.count(key, kind == k_text ? 8 : 1);
  const auto fill = [&](auto read) {
    std::vector<decltype(read())> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(read());
    return Value(std::move(out));
  };
  if (kind == k_text) return fill([&] { return from.text(key); });
  if (is_real(kind)) return fill([&] { return real_of(from, kind, key); });
  return fill([&] { return integer_of(from, kind, key); });
}

Value value_of(Reader& from, const std::string& key) {
  const auto kind = from.number<uint32_t>(key);
  if (kind == k_text) return from.text(key);
  if (kind == k_array) return array_of(from, key);
  if (is_real(kind)) return real_of(from, kind, key);
  return integer_of(from, kind, key);
}

/// ggml counts a row's elements first.
Shape shape_of(Reader& from, const std::string& name) {
  const auto rank = from.number<uint32_t>(name);
  if (rank > static_cast<uint32_t>(Shape::max_rank))
    from.fail(cat("the tensor ", quote(name), " has ", rank, " dimensions"));
  std::vector<int64_t> sizes(rank);
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    *size = static_cast<int64_t>(from.number<uint64_t>(name));
    if (*size < 0) from.fail(cat("a size of the tensor ", quote(name)));
  }
  checked_elements(sizes, 64);  // no product overflows
  return Shape(sizes);
}

}  // namespace

bool is_gguf(const Blob& blob) {
  return blob.size() >= 4 && std::memcmp(blob.data(), magic.data(), magic.size()) == 0;
}

File::File(std::shared_ptr<const Blob> blob) {
  Reader from(*blob);
  if (!is_gguf(*blob)) throw Error(Code::bad_model, "it is no GGUF file", "it begins with the letters GGUF");
  from.number<uint32_t>("the magic");
  if (const auto version = from.number<uint32_t>("the version"); version < 2 || version > 3)
    throw Error(Code::unsupported, cat("it is a GGUF file of version ", version),
                "versions 2 and 3 can be read, of little-endian machines");
  const int64_t tensors = from.count("the number of tensors", 24),
                values = from.count("the number of metadata values", 12);
  for (int64_t i = 0; i < values; ++i) {
    std::string key = from.text("a metadata key");
    Value read = value_of(from, key);
    if (!metadata_.emplace(key, std::move(read)).second) from.fail(cat("a second value of ", quote(key)));
  }
  for (int64_t i = 0; i < tensors; ++i) {
    const std::string name = from.text("a tensor's name");
    Entry entry{.shape = shape_of(from, name), .blob = blob};
    entry.type = static_cast<Type>(from.number<uint32_t>(name));
    entry.offset = static_cast<int64_t>(from.number<uint64_t>(name));
    const BlockForm form = form_of(entry.type, name);
    if (entry.shape.elements() == 0) from.fail(cat("the tensor ", quote(name), " is empty"));
    if (entry.shape.rank() > 0 && entry.shape.back(1) % form.elements)
      from.fail(cat("rows of ", entry.shape.back(1), " elements of the tensor ", quote(name),
                    ", which are no whole blocks"));
    entry.bytes = entry.shape.elements() / form.elements * form.bytes;
    if (!tensors_.emplace(name, std::move(entry)).second) from.fail(cat("a second tensor ", quote(name)));
  }
  const int64_t alignment = integer_or("general.alignment", 32);
  if (alignment < 1 || alignment > 1 << 20) from.fail(cat("the alignment ", alignment));
  const int64_t start = (from.at() + alignment - 1) / alignment * alignment;
  for (auto& [name, entry] : tensors_) {
    if (entry.offset < 0 || entry.bytes > blob->size() - start || entry.offset > blob->size() - start - entry.bytes)
      throw Error(Code::bad_model,
                  cat("the tensor ", quote(name), " does not lie in the file of ", blob->size(),
                      " bytes: the file is cut off"),
                  "download it again, and compare its checksum");
    entry.offset += start;
  }
}

File::File(const Parts& parts) : File(parts.at(0)) {
  const auto number = [](const File& part, const char* key, int64_t usual) {
    return part.integer_or(std::string("split.") + key, usual);
  };
  const auto count = static_cast<int64_t>(parts.size());
  if (number(*this, "count", 1) > 1 && count == 1)
    throw Error(Code::not_found, cat("it is a part of a model in ", number(*this, "count", 1), " files"),
                "keep all parts in one folder, by their names NAME-00001-of-0000N.gguf");
  for (int64_t i = 0; i < count; ++i) {
    File own(parts[static_cast<size_t>(i)]);
    if (number(own, "count", 1) != count || number(own, "no", i) != i)
      throw Error(Code::bad_model,
                  cat("part ", i + 1, " of ", count, " specifies that it is part ", number(own, "no", i) + 1, " of ",
                      number(own, "count", 1)),
                  "the files are of different models, or were renamed");
    if (i == 0) continue;
    for (auto& [name, entry] : own.tensors_)
      if (!tensors_.emplace(name, std::move(entry)).second)
        throw Error(Code::bad_model, cat("the tensor ", quote(name), " is in several parts"),
                    "the files are of different models");
  }
  const auto all = static_cast<int64_t>(tensors_.size());
  if (number(*this, "tensors.count", all) != all)
    throw Error(Code::bad_model,
                cat("the parts have ", all, " tensors, expected ", number(*this, "tensors.count", all)),
                "the files are of different models");
}

bool File::has(const std::string& key) const {
  read_.insert(key);
  return metadata_.contains(key);
}

std::vector<std::string> File::unread(const std::string& prefix) const {
  std::vector<std::string> out;
  for (const auto& [key, value] : metadata_)
    if (key.starts_with(prefix) && !read_.contains(key)) out.push_back(key);
  return out;
}

template <class T>
const T& File::value(const std::string& key, std::string_view kind) const {
  read_.insert(key);
  const auto found = metadata_.find(key);
  if (found == metadata_.end())
    throw Error(Code::bad_model, cat("its metadata have no ", key),
                "the file is incomplete, or made by another program");
  if (const T* out = std::get_if<T>(&found->second)) return *out;
  throw Error(Code::bad_model, cat("the metadata ", key, " is no ", kind),
              "the file is damaged, or made by another program");
}

int64_t File::integer(const std::string& key) const { return value<int64_t>(key, "integer"); }
double File::real(const std::string& key) const {
  read_.insert(key);
  const auto found = metadata_.find(key);
  if (found != metadata_.end())
    if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  return value<double>(key, "number");
}
const std::string& File::text(const std::string& key) const { return value<std::string>(key, "text"); }
const std::vector<std::string>& File::texts(const std::string& key) const {
  return value<std::vector<std::string>>(key, "list of texts");
}

}  // namespace plait::gguf
