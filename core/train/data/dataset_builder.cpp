#include "core/train/data/dataset_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

DatasetBuilder::DatasetBuilder(const DatasetOptions& options, std::string unit, std::string file)
    : options_(options), state_(std::make_shared<Dataset::State>()) {
  if (options.seq < 1) throw Error(Code::invalid_argument, cat("seq is ", options.seq, ", at least 1 is needed"));
  state_->unit = std::move(unit);
  state_->file = std::move(file);
}

void DatasetBuilder::add(const Document& document, int64_t place) {
  const auto length = static_cast<int64_t>(document.ids.size());
  check_length(length, place);
  cut(append(document, named(place)), length, place, false);
}

void DatasetBuilder::extend(const Document& part) { append(part, "the text"); }

void DatasetBuilder::end_stream() { cut(0, static_cast<int64_t>(state_->own.size()), 1, true); }

void DatasetBuilder::expect(double share) {
  auto reserve = [&](auto& list) {
    list.reserve(static_cast<size_t>(static_cast<double>(list.size()) / share * 1.05));
  };
  reserve(state_->own);
  reserve(state_->counted);
  reserve(state_->pieces);
}

void DatasetBuilder::add_array(const Tensor& array) {
  if (array.dtype() != DType::i32 && array.dtype() != DType::i64)
    throw Error(Code::unsupported, cat("its elements are ", dtype_name(array.dtype()), ", token ids are i32 or i64"),
                "save them with .astype(numpy.int32)");
  const int rank = array.shape().rank();
  if (rank != 1 && rank != 2)
    throw Error(Code::unsupported, cat("its array has the shape ", array.shape().text(), ", not [n] or [rows, s]"));
  if (rank == 1) state_->unit = "token";
  take_ids(array);
  const int64_t length = array.shape().back(1), rows = rank == 2 ? array.shape()[0] : 1;
  for (int64_t row = 0; row < rows; ++row) {
    check_ids(state_->ids.subspan(static_cast<size_t>(row * length), static_cast<size_t>(length)),
              rank == 2 ? named(row + 1) : "the array");
    if (rank == 2) check_length(length, row + 1);
    cut(row * length, length, row + 1, rank == 1);
  }
}

void DatasetBuilder::count_conversation(const ChatNotes& notes) {
  ++(notes.found ? found_ : whole_);
  unknown_.insert(notes.unknown.begin(), notes.unknown.end());
}

Dataset DatasetBuilder::finish() {
  Dataset::State& state = *state_;
  if (!state.mapped) state.ids = state.own;
  if (whole_)
    state.notes.push_back(cat("of ", whole_, " of ", found_ + whole_,
                              " conversations all tokens count: the chat template ",
                              "does not begin an assistant's turn as it asks for one"));
  if (!unknown_.empty()) {
    std::string names;
    for (const std::string& name : unknown_) names += (names.empty() ? "" : ", ") + quote(name);
    state.notes.push_back(
        cat("members of messages without an effect, for the chat template does not name them: ", names));
  }
  if (empty_)
    state.notes.push_back(cat(empty_, " documents or pieces were left out: the loss counts nothing in them"));
  if (state.pieces.empty())
    throw Error(Code::invalid_argument, "there is nothing in it to train on",
                "a document needs two tokens at least, of which the loss counts the second");
  state.digest = crc32c(std::as_bytes(std::span(state.counted)), crc32c(std::as_bytes(state.ids)));
  for (const Piece& piece : state.pieces) {
    const int64_t range[] = {piece.begin, piece.length};
    state.digest = crc32c(std::as_bytes(std::span(range)), state.digest);
  }
  Dataset out;
  out.state_ = std::move(state_);
  return out;
}

/// Returns the document's offset in the list of all ids.
int64_t DatasetBuilder::append(const Document& document, std::string_view where) {
  check_ids(document.ids, where);
  if (!document.counted.empty() && document.counted.size() != document.ids.size())
    throw Error(Code::invalid_argument, cat(where, " has ", document.ids.size(), " tokens, and ",
                                            document.counted.size(), " flags of whether they count"));
  Dataset::State& state = *state_;
  const size_t begin = state.own.size();
  state.own.insert(state.own.end(), document.ids.begin(), document.ids.end());
  if (!document.counted.empty() || !state.counted.empty()) {
    state.counted.resize(begin, 1);
    state.counted.insert(state.counted.end(), document.counted.begin(), document.counted.end());
    state.counted.resize(state.own.size(), 1);  // the documents before count entirely
  }
  return static_cast<int64_t>(begin);
}

void DatasetBuilder::take_ids(const Tensor& array) {
  Dataset::State& state = *state_;
  const auto count = static_cast<size_t>(array.elements());
  const bool aligned = reinterpret_cast<uintptr_t>(array.data()) % alignof(int32_t) == 0;  // NumPy aligns it
  if (array.dtype() == DType::i32 && aligned) {
    state.mapped = array.blob();
    state.ids = {array.as<const int32_t>(), count};
    return;
  }
  state.own.resize(count);
  const size_t width = array.dtype() == DType::i32 ? sizeof(int32_t) : sizeof(int64_t);
  for (size_t i = 0; i < count; ++i) {
    int64_t id = 0;
    std::memcpy(&id, array.data() + i * width, width);
    if (width == sizeof(int32_t)) id = static_cast<int32_t>(id);
    state.own[i] = static_cast<int32_t>(id);
    if (id != state.own[i])
      throw Error(Code::invalid_argument, cat("its element ", i + 1, " is ", id, ": no id of a vocabulary"));
  }
  state.ids = state.own;
  array.drop();
}

void DatasetBuilder::check_ids(std::span<const int32_t> ids, std::string_view where) const {
  const int64_t vocabulary = options_.vocabulary;
  auto bad =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || (vocabulary && id >= vocabulary); });
  if (bad != ids.end())
    throw Error(Code::invalid_argument,
                cat("token ", bad - ids.begin() + 1, " of ", where, " is ", *bad, ": no id of ",
                    vocabulary ? cat("the vocabulary of ", vocabulary) : "any vocabulary"),
                "tokenize with this model's own tokenizer");
}

void DatasetBuilder::check_length(int64_t length, int64_t place) const {
  if (length - 1 > options_.seq && !options_.cut_long)
    throw Error(Code::invalid_argument,
                cat(named(place), " has ", length, " tokens, more than the ", options_.seq + 1,
                    " that a sequence of ", options_.seq, " inputs and the last one's label has"),
                "raise the length (option seq, as far as the model's context goes), "
                "shorten the document, or let it be cut (option cut_long)");
}

/// Adjacent pieces share the id at their border: a label of one and an input of the next.
void DatasetBuilder::cut(int64_t begin, int64_t length, int64_t place, bool stream) {
  Dataset::State& state = *state_;
  if (length < 2) ++empty_;
  for (int64_t at = 0; at + 1 < length; at += options_.seq) {
    const Piece piece{begin + at, std::min(options_.seq + 1, length - at), stream ? at + 1 : place};
    int64_t targets = piece.length - 1;
    if (!state.counted.empty()) {
      const auto first = state.counted.begin() + piece.begin + 1;
      targets = std::count(first, first + targets, uint8_t{1});
    }
    if (targets == 0) {
      ++empty_;
      continue;
    }
    state.pieces.push_back(piece);
    state.inputs += piece.length - 1;
    state.targets += targets;
  }
}

std::string DatasetBuilder::named(int64_t place) const { return cat(state_->unit, " ", place); }

}  // namespace plait
