#pragma once
// Rows that stand for tokens: embeddings of an image or a sound at places of a prompt. Each row of a generator has a negative token id
// of its own, so that sequences, pages of the cache and what is computed again treat it like a token.
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

class GivenNumbers;

/// Positions of a token where a decoder takes several of them (M-RoPE): each is the sum of the advances of all tokens before it, plus
/// its offset. A token of text, and a row without a place of its own, has the offsets 0 and the advance 1.
struct GivenPlace {
  std::array<int32_t, 3> offset{};  ///< time, height, width
  int32_t advance = 1;
  bool operator==(const GivenPlace&) const = default;
};

/// f32 [n, h], immutable. Its ids are in use until the last reference is gone.
class GivenRows {
 public:
  /// `places`: of each row, or empty.
  GivenRows(std::shared_ptr<GivenNumbers> numbers, int64_t begin, Tensor rows, std::vector<GivenPlace> places = {});
  ~GivenRows();
  GivenRows(const GivenRows&) = delete;
  GivenRows& operator=(const GivenRows&) = delete;

  int64_t count() const { return rows_.shape()[0]; }
  int32_t id(int64_t row) const { return static_cast<int32_t>(-1 - begin_ - row); }
  /// The numbers of the row with that id; null if it is not one of these.
  const float* row(int32_t id) const;
  /// Null if it is not one of these.
  const GivenPlace* place(int32_t id) const;
  const Tensor& rows() const { return rows_; }
  const std::vector<GivenPlace>& places() const { return places_; }

 private:
  int64_t row_of_id(int32_t id) const;  ///< -1 if it is not one of these
  const std::shared_ptr<GivenNumbers> numbers_;
  const int64_t begin_;
  const Tensor rows_;
  const std::vector<GivenPlace> places_;
};

using GivenList = std::span<const std::shared_ptr<const GivenRows>>;

/// The row with that id; null if none is.
const float* row_of(GivenList given, int32_t id);
/// The place of a token: of a row, or of a token of text.
GivenPlace place_of(GivenList given, int32_t id);

/// Rows of a saved sequence, which then had the ids from `first_id` down.
struct SavedRows {
  int32_t first_id = 0;
  std::shared_ptr<const GivenRows> rows;
};
/// The id that such a token has now; 0 if it is no token of these rows.
int32_t restored_id(std::span<const SavedRows> saved, int32_t id);

/// Gives rows their ids. Thread-safe.
class GivenNumbers : public std::enable_shared_from_this<GivenNumbers> {
 public:
  static constexpr int64_t all = int64_t{1} << 31;
  /// `limit`: ids there are.
  explicit GivenNumbers(int64_t limit = all) : limit_(limit) {}

  /// Throws Error(overloaded) if too few ids are free.
  std::shared_ptr<const GivenRows> number(Tensor rows, std::vector<GivenPlace> places = {});
  /// Whether ids were given out again since the last call: pages of earlier rows must not be found any more. Ids that were in use at
  /// that time are not given out until the next.
  bool take_wrapped();

 private:
  friend class GivenRows;
  using Ranges = std::map<int64_t, int64_t>;  ///< end by begin
  /// The first place from `begin` for `count` ids outside of `used`; -1 if there is none.
  int64_t place_from(int64_t begin, int64_t count) const;
  void release(int64_t begin);

  const int64_t limit_;
  std::mutex mutex_;
  Ranges used_, kept_;  ///< in use; in use when ids were last given out again
  int64_t next_ = 0;
  bool wrapped_ = false;
};

}  // namespace plait
