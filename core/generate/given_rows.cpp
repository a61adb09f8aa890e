#include "core/generate/given_rows.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

GivenRows::GivenRows(std::shared_ptr<GivenNumbers> numbers, int64_t begin, Tensor rows,
                     std::vector<GivenPlace> places)
    : numbers_(std::move(numbers)), begin_(begin), rows_(std::move(rows)), places_(std::move(places)) {}

GivenRows::~GivenRows() { numbers_->release(begin_); }

int64_t GivenRows::row_of_id(int32_t id) const {
  const int64_t row = -1 - int64_t{id} - begin_;
  return row < count() ? std::max<int64_t>(row, -1) : -1;
}

const float* GivenRows::row(int32_t id) const {
  const int64_t row = row_of_id(id);
  return row >= 0 ? rows_.as<float>() + row * rows_.shape()[1] : nullptr;
}

const GivenPlace* GivenRows::place(int32_t id) const {
  static constexpr GivenPlace of_text;
  const int64_t row = row_of_id(id);
  if (row < 0) return nullptr;
  return places_.empty() ? &of_text : &places_[static_cast<size_t>(row)];
}

const float* row_of(GivenList given, int32_t id) {
  for (const auto& rows : given)
    if (const float* row = rows->row(id)) return row;
  return nullptr;
}

GivenPlace place_of(GivenList given, int32_t id) {
  if (id < 0)
    for (const auto& rows : given)
      if (const GivenPlace* place = rows->place(id)) return *place;
  return {};
}

int32_t restored_id(std::span<const SavedRows> saved, int32_t id) {
  for (const SavedRows& one : saved)
    if (const int64_t row = int64_t{one.first_id} - id; id < 0 && row >= 0 && row < one.rows->count())
      return one.rows->id(row);
  return 0;
}

int64_t GivenNumbers::place_from(int64_t begin, int64_t count) const {
  for (bool moved = true; moved;) {
    moved = false;
    for (const Ranges* ranges : {&used_, &kept_})
      for (auto at = ranges->begin(); at != ranges->end() && at->first < begin + count; ++at)
        if (at->second > begin) begin = at->second, moved = true;
  }
  return begin + count <= limit_ ? begin : -1;
}

std::shared_ptr<const GivenRows> GivenNumbers::number(Tensor rows, std::vector<GivenPlace> places) {
  std::lock_guard lock(mutex_);
  const int64_t count = rows.shape()[0];
  int64_t begin = place_from(next_, count);
  if (begin < 0) {
    kept_ = used_;
    wrapped_ = true;
    begin = place_from(0, count);
  }
  if (begin < 0)
    throw Error(Code::overloaded, cat("there are too few ids for ", count, " rows in place of tokens: ", limit_),
                "release requests and kept conversations that have rows");
  auto out = std::make_shared<GivenRows>(shared_from_this(), begin, std::move(rows), std::move(places));
  used_.emplace(begin, begin + count);
  next_ = begin + count;
  return out;
}

bool GivenNumbers::take_wrapped() {
  std::lock_guard lock(mutex_);
  return std::exchange(wrapped_, false);
}

void GivenNumbers::release(int64_t begin) {
  std::lock_guard lock(mutex_);
  used_.erase(begin);
}

}  // namespace plait
