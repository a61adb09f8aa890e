#pragma once
// Training data: documents as token ids, and which of them are labels.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

class LoadProgress;
class ThreadPool;
class Tokenizer;
struct Document;

/// A document, or a piece of one. Each id but the last is an input whose label is the next id, so n ids are n - 1
/// tokens of a row. Valid as long as its data set.
struct TrainingSample {
  std::span<const int32_t> ids;
  std::span<const uint8_t> counted;  ///< per id: whether it counts as a label; empty: all count

  int64_t inputs() const { return ids.empty() ? 0 : static_cast<int64_t>(ids.size()) - 1; }
  /// The label of input `i`; -1 if it does not count.
  int32_t label(size_t i) const { return counted.empty() || counted[i + 1] ? ids[i + 1] : -1; }
  int64_t targets() const;
};

struct DatasetOptions {
  const Tokenizer* tokenizer = nullptr;  ///< for texts; not needed for token ids
  std::optional<int32_t> eos;            ///< appended to each text; nullopt: the tokenizer's, if it has one
  int64_t seq = 1024;                    ///< most inputs of a sample
  int64_t vocabulary = 0;                ///< ids are below this; 0: not known
  /// Cuts documents longer than `seq`, as plain texts and [n] arrays always are; otherwise they are an error.
  bool cut_long = false;
  ThreadPool* pool = nullptr;        ///< for tokenizing; optional
  LoadProgress* progress = nullptr;  ///< receives the progress of reading, and may cancel it
  double progress_until = 1;         ///< share of the whole load that is done after reading
};

/// Immutable and thread-safe. Copies share everything.
class Dataset {
 public:
  /// Reads a file:
  /// - `.jsonl`, `.json`, `.ndjson`: JSON lines, each an object with `text`; or `prompt` and `completion`, of which
  ///   the completion counts; or `messages` and optional `tools`, rendered with the tokenizer's chat template, of which
  ///   the assistant's turns count (see DocumentEncoder). Other members and blank lines are ignored.
  /// - an .npy file of int32 or int64, detected by its first bytes: [n], one stream, or [rows, s], one document per
  ///   row. No BOS or EOS is added. int32 stays mapped.
  /// - anything else: plain text, UTF-8, one stream with BOS and EOS.
  /// A stream is cut into consecutive pieces of `seq` inputs, so that every id is a label once. Pages of the mapped
  /// file are dropped after reading. Throws Error, naming the file and the line or row: invalid_argument (a broken
  /// line, a field of another type, a document that is too long, an id outside the vocabulary, nothing to train on),
  /// unsupported, not_found, io, cancelled.
  static Dataset read(const std::string& path, const DatasetOptions& options);

  /// Documents in memory, under the same rules; errors number them from 1.
  static Dataset of(const std::vector<Document>& documents, const DatasetOptions& options);

  int64_t size() const;
  TrainingSample operator[](int64_t index) const;
  /// "line 12": where the sample begins, with the file's name.
  std::string where(int64_t index) const;

  int64_t inputs() const;   ///< of all samples
  int64_t longest() const;  ///< inputs of the longest sample
  int64_t targets() const;  ///< labels that count, of all samples
  /// Digest of ids, counted labels and cuts; a resumed run compares it.
  uint32_t digest() const;
  /// Notes for the user: documents left out, conversations in which all tokens count.
  const std::vector<std::string>& notes() const;

 private:
  friend class DatasetBuilder;
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace plait
