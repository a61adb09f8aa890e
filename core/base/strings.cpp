#include "core/base/strings.h"

#include <algorithm>
#include <cstring>

#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/text.h"

namespace plait {

namespace {

constexpr int64_t word_bytes = sizeof(uint64_t);
/// Numbers of a table that has a base, so that a base can grow.
constexpr uint64_t own_number = uint64_t{1} << 63;

uint64_t word_at(const TensorView& view, int64_t i) {
  uint64_t out;
  std::memcpy(&out, view.data + i * word_bytes, sizeof out);
  return out;
}

void set_word(const TensorView& view, int64_t i, uint64_t value) {
  std::memcpy(view.data + i * word_bytes, &value, sizeof value);
}

/// Where the text of an element begins among the texts.
uint64_t begin_of(const TensorView& packed, int64_t element, int64_t before) {
  return element == before ? 0 : word_at(packed, element - 1);
}

Tensor made_packed(const Shape& shape, int64_t text_bytes, const StringTable::Take& take) {
  int64_t bytes = checked_elements({shape.begin(), shape.end()}, dtype_bits(DType::string)) * word_bytes;
  if (__builtin_add_overflow(bytes, text_bytes, &bytes))
    throw Error(Code::out_of_memory, "the texts of a tensor have too many bytes in all");
  return Tensor(DType::string, shape, take(bytes));
}

/// The last elements; `before`: of those that are left out.
template <class Text>
Tensor pack(const Shape& shape, std::span<const Text> texts, int64_t before = 0) {
  PLAIT_ASSERT(std::ssize(texts) + before == shape.elements());
  int64_t bytes = 0;
  for (const auto& text : texts) bytes += static_cast<int64_t>(text.size());
  const Tensor out = made_packed(shape, bytes, make_blob);
  uint64_t end = 0;
  char* to = out.as<char>() + out.bytes();
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) std::memcpy(to + end, texts[i].data(), texts[i].size());
    end += texts[i].size();
    set_word(out.view(), before + static_cast<int64_t>(i), end);
  }
  return out;
}

}  // namespace

Tensor packed_strings(const Shape& shape, std::span<const std::string_view> texts) { return pack(shape, texts); }
Tensor packed_strings(const Shape& shape, std::span<const std::string> texts) { return pack(shape, texts); }

int64_t packed_string_bytes(const TensorView& packed, int64_t before) {
  return packed.bytes() + static_cast<int64_t>(begin_of(packed, packed.elements(), before));
}

namespace {

std::optional<Error> error_of_packed(const TensorView& packed, int64_t bytes, int64_t before) {
  const int64_t elements = packed.elements();
  if (bytes < elements * word_bytes)
    return Error(Code::invalid_argument,
                 cat("a tensor string", packed.shape.text(), " has ", bytes, " bytes, expected ", word_bytes,
                     " for each element, and the texts after them"));
  const char* const hint = "a tensor of strings is, for each element, where its text ends, as u64, and then all texts";
  const auto most = static_cast<uint64_t>(bytes - elements * word_bytes);
  uint64_t end = 0;
  for (int64_t i = before; i < elements; ++i) {
    const uint64_t next = word_at(packed, i);
    if (next < end || next > most)
      return Error(Code::invalid_argument,
                   cat("string ", i - before, " ends at byte ", next, " of ", most, ", and the one before at ", end), hint);
    end = next;
  }
  if (end != most)
    return Error(Code::invalid_argument,
                 cat("the last of ", elements - before, " strings ends at byte ", end, ", and there are ", most), hint);
  return std::nullopt;
}

}  // namespace

void check_packed_strings(const TensorView& packed, int64_t bytes, int64_t before) {
  if (std::optional<Error> error = error_of_packed(packed, bytes, before)) throw std::move(*error);
}

int64_t check_packed_string_list(const TensorView& packed, int64_t bytes) {
  for (int depth : {1, 2}) {
    const std::optional<int64_t> before = bytes < packed.bytes() ? std::nullopt : numbers_of_list(packed, depth);
    if (before && !error_of_packed(packed, bytes, *before)) return *before;
  }
  check_packed_strings(packed, bytes);
  return 0;
}

std::string_view packed_string(const TensorView& packed, int64_t element, int64_t before) {
  const uint64_t begin = begin_of(packed, element, before);
  return {reinterpret_cast<const char*>(packed.data) + packed.bytes() + begin, word_at(packed, element) - begin};
}

std::vector<std::string_view> packed_texts(const TensorView& packed) {
  std::vector<std::string_view> out;
  out.reserve(static_cast<size_t>(packed.elements()));
  for (int64_t i = 0; i < packed.elements(); ++i) out.push_back(packed_string(packed, i));
  return out;
}

Tensor packed_string_list(std::span<const TensorView> parts, int64_t before) {
  PLAIT_ASSERT(before == 0 || parts.size() == 1);
  std::vector<Shape> shapes;
  int64_t bytes = 0, elements = 0;
  for (const TensorView& part : parts) {
    shapes.push_back(part.shape);
    elements += part.elements();
    bytes += packed_string_bytes(part, before) - part.bytes();
  }
  const Tensor out = made_packed({list_elements(DType::string, shapes)}, bytes, make_blob);
  pack_list(parts, out.view());
  int64_t at = out.elements() - elements + before;
  uint64_t end = 0;
  char* const to = out.as<char>() + out.bytes();
  for (const TensorView& part : parts)
    for (int64_t i = before; i < part.elements(); ++i) {
      const std::string_view text = packed_string(part, i, before);
      if (!text.empty()) std::memcpy(to + end, text.data(), text.size());
      set_word(out.view(), at++, end += text.size());
    }
  return out;
}

Tensor packed_string_part(const TensorView& list, const ListPart& part, int64_t before) {
  const int64_t elements = part.shape.elements(), numbers = std::max<int64_t>(before - part.offset, 0);  // of a list in the list
  std::vector<std::string_view> texts;
  for (int64_t i = numbers; i < elements; ++i) texts.push_back(packed_string(list, part.offset + i, before));
  const Tensor out = pack(part.shape, std::span<const std::string_view>(texts), numbers);
  for (int64_t i = 0; i < numbers; ++i) set_word(out.view(), i, word_at(list, part.offset + i));
  return out;
}

StringTable::StringTable(std::shared_ptr<const StringTable> base, Take take)
    : base_(std::move(base)), take_(std::move(take)) {}

/// Its start is an address, which who writes a text does not know: texts cannot be made to share places.
uint64_t StringTable::hash(std::string_view text) const {
  Hasher hasher;
  hasher.add(uint64_t{reinterpret_cast<uintptr_t>(this)});
  hasher.add(text);
  return mixed_bits(hasher.value(), 0);
}

uint64_t StringTable::find(std::string_view text, uint64_t hash) const {
  if (capacity_ == 0) return 0;
  const uint64_t mask = 2 * capacity_ - 1;
  for (uint64_t at = hash & mask; places()[at]; at = (at + 1) & mask) {
    const Entry& entry = entries()[places()[at] - 1];
    if (entry.hash == hash && entry.size == text.size() && std::memcmp(entry.data, text.data(), text.size()) == 0)
      return places()[at];
  }
  return 0;
}

/// Texts of few bytes share memory.
const char* StringTable::keep(std::string_view text) {
  constexpr int64_t least = 4096, most = 1 << 20;
  const auto size = static_cast<int64_t>(text.size());
  if (left_ < size) {
    const int64_t usual = std::clamp(chunks_.empty() ? least : 2 * chunks_.back()->size(), least, most);
    std::shared_ptr<Blob> chunk = take_(std::max(usual, size));
    left_ = chunk->size();
    chunks_.push_back(std::move(chunk));
  }
  std::byte* const to = chunks_.back()->mutable_data() + (chunks_.back()->size() - left_);
  std::memcpy(to, text.data(), text.size());
  left_ -= size;
  return reinterpret_cast<const char*>(to);
}

void StringTable::grow() {
  const uint64_t capacity = std::max<uint64_t>(64, 2 * capacity_);
  std::shared_ptr<Blob> entries = take_(static_cast<int64_t>(capacity * sizeof(Entry)));
  std::shared_ptr<Blob> places = take_(static_cast<int64_t>(2 * capacity * sizeof(uint64_t)));
  if (count_) std::memcpy(entries->mutable_data(), entries_->data(), count_ * sizeof(Entry));
  auto* const to = reinterpret_cast<uint64_t*>(places->mutable_data());
  std::fill_n(to, 2 * capacity, uint64_t{0});
  const uint64_t mask = 2 * capacity - 1;
  for (uint64_t i = 0; i < count_; ++i) {
    uint64_t at = reinterpret_cast<const Entry*>(entries->data())[i].hash & mask;
    while (to[at]) at = (at + 1) & mask;
    to[at] = i + 1;
  }
  entries_ = std::move(entries);
  places_ = std::move(places);
  capacity_ = capacity;
}

uint64_t StringTable::number(std::string_view text) {
  if (text.empty()) return 0;
  if (base_) {
    const uint64_t base_hash = base_->hash(text);
    std::lock_guard lock(base_->mutex_);
    if (const uint64_t found = base_->find(text, base_hash)) return found;
  }
  const uint64_t own = hash(text), mark = base_ ? own_number : 0;
  std::lock_guard lock(mutex_);
  if (const uint64_t found = find(text, own)) return found | mark;
  if (count_ == capacity_) grow();
  const char* const kept = keep(text);
  entries()[count_++] = {kept, text.size(), own};
  const uint64_t mask = 2 * capacity_ - 1;
  uint64_t at = own & mask;
  while (places()[at]) at = (at + 1) & mask;
  places()[at] = count_;
  return count_ | mark;
}

std::string_view StringTable::text(uint64_t number) const {
  if (base_ && !(number & own_number)) return base_->text(number);
  if (base_) number &= ~own_number;
  std::lock_guard lock(mutex_);
  if (number == 0 || number > count_) return {};
  const Entry& entry = entries()[number - 1];
  return {entry.data, entry.size};
}

Tensor StringTable::numbered(const TensorView& packed, const Take& take, int64_t before) {
  Tensor out(DType::string, packed.shape, take(packed.bytes()));
  if (before) std::memcpy(out.data(), packed.data, static_cast<size_t>(before * word_bytes));
  for (int64_t i = before; i < packed.elements(); ++i)
    set_word(out.view(), i, number(packed_string(packed, i, before)));
  return out;
}

Tensor StringTable::packed(const TensorView& numbered, const Take& take, int64_t before) const {
  int64_t bytes = 0;
  for (int64_t i = before; i < numbered.elements(); ++i)
    if (__builtin_add_overflow(bytes, static_cast<int64_t>(text(word_at(numbered, i)).size()), &bytes))
      throw Error(Code::out_of_memory, "the texts of a tensor have too many bytes in all");
  const Tensor out = made_packed(numbered.shape, bytes, take);
  if (before) std::memcpy(out.data(), numbered.data, static_cast<size_t>(before * word_bytes));
  uint64_t end = 0;
  char* const to = out.as<char>() + numbered.bytes();
  for (int64_t i = before; i < numbered.elements(); ++i) {
    const std::string_view one = text(word_at(numbered, i));
    if (!one.empty()) std::memcpy(to + end, one.data(), one.size());
    end += one.size();
    set_word(out.view(), i, end);
  }
  return out;
}

}  // namespace plait
