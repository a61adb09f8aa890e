#pragma once
// Tensors of strings. Their dtype is DType::string, of 64 bits an element, in one of two forms:
//
//   packed    of hosts, files and constants: a number for each element, where its text ends, then the texts in that order. Such a
//             tensor can be reshaped; its elements cannot be moved without their texts.
//   numbered  of a run: for each element the number of its text in the run's StringTable. Equal texts have equal numbers, so ops
//             that move elements or compare them for equality treat strings as u64, and memory that is zero is empty strings.
//
// A list of tensors of strings (core/base/packed_list.h) has both forms too: the numbers before its elements are as in other lists.
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/packed_list.h"
#include "core/base/tensor.h"

namespace plait {

/// The packed form of `texts`, one for each element of the shape.
Tensor packed_strings(const Shape& shape, std::span<const std::string_view> texts);
Tensor packed_strings(const Shape& shape, std::span<const std::string> texts);

/// Bytes of a packed tensor with its texts; `before`: elements that are the numbers of a list.
int64_t packed_string_bytes(const TensorView& packed, int64_t before = 0);
/// Throws Error(invalid_argument), with the element at fault, unless `bytes` bytes from `packed.data` are the packed form of its shape.
void check_packed_strings(const TensorView& packed, int64_t bytes, int64_t before = 0);
/// The text of an element, in the memory of `packed`, which has been checked.
std::string_view packed_string(const TensorView& packed, int64_t element, int64_t before = 0);
/// The texts of all elements.
std::vector<std::string_view> packed_texts(const TensorView& packed);

/// How many elements are the numbers of lists: for the least depth of lists for which the tensor is packed. Throws as
/// check_packed_strings, of no list, where there is none.
int64_t check_packed_string_list(const TensorView& packed, int64_t bytes);
/// A list of packed tensors, packed. `before`: of the part, if it is the only one and a list itself.
Tensor packed_string_list(std::span<const TensorView> parts, int64_t before = 0);
/// A part of such a list, whose texts have been checked, as a packed tensor in new memory.
Tensor packed_string_part(const TensorView& list, const ListPart& part, int64_t before);

/// Texts by number; number 0 is the empty text. Memory comes from `take` only, so a budget bounds it. Thread-safe.
class StringTable {
 public:
  using Take = std::function<std::shared_ptr<Blob>(int64_t bytes)>;

  /// `base` (may be null): a table whose numbers mean the same here. Texts that are not in it are added here.
  explicit StringTable(std::shared_ptr<const StringTable> base = nullptr, Take take = make_blob);
  StringTable(const StringTable&) = delete;

  /// The number of the text, which is copied when it is new. Throws what `take` throws.
  uint64_t number(std::string_view text);
  /// Valid as long as the table. For a number that the table does not have: the empty text.
  std::string_view text(uint64_t number) const;

  /// The numbered form of a packed tensor, in memory of `take`.
  Tensor numbered(const TensorView& packed, const Take& take, int64_t before = 0);
  /// The inverse. Many elements may have one long text: the result is as large as all of them.
  Tensor packed(const TensorView& numbered, const Take& take, int64_t before = 0) const;

 private:
  struct Entry {
    const char* data;
    uint64_t size, hash;
  };
  uint64_t hash(std::string_view text) const;
  /// 0 if the text is not there.
  uint64_t find(std::string_view text, uint64_t hash) const;
  const char* keep(std::string_view text);
  void grow();
  Entry* entries() const { return reinterpret_cast<Entry*>(entries_->mutable_data()); }
  uint64_t* places() const { return reinterpret_cast<uint64_t*>(places_->mutable_data()); }

  const std::shared_ptr<const StringTable> base_;
  const Take take_;
  mutable std::mutex mutex_;
  std::shared_ptr<Blob> entries_;  ///< by number, from 1 on
  std::shared_ptr<Blob> places_;   ///< numbers by hash (open addressing); twice as many as entries
  uint64_t count_ = 0, capacity_ = 0;
  std::vector<std::shared_ptr<Blob>> chunks_;  ///< of texts
  int64_t left_ = 0;                           ///< bytes at the end of the last chunk
};

}  // namespace plait
