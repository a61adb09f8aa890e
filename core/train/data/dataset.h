#pragma once
// Training data: documents as token ids, and which of them the loss counts.
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

/// A document, or a piece of one. Each id but the last is an input, and the id behind it is its label: so n ids are n - 1
/// tokens of a row. Valid as long as its data set.
struct Sample {
  std::span<const int32_t> ids;
  std::span<const uint8_t> counted;  ///< as long: whether the loss counts an id as a label; empty: all count

  int64_t inputs() const { return ids.empty() ? 0 : static_cast<int64_t>(ids.size()) - 1; }
  /// What comes behind the input `i`; -1 where the loss does not count it.
  int32_t label(size_t i) const { return counted.empty() || counted[i + 1] ? ids[i + 1] : -1; }
  int64_t targets() const;
};

struct DatasetOptions {
  const Tokenizer* tokenizer = nullptr;  ///< for texts; token ids need none
  std::optional<int32_t> eos;            ///< ends each text; nullopt: the tokenizer's own, if it has one
  int64_t seq = 1024;                    ///< most inputs of a sample
  int64_t vocabulary = 0;                ///< ids are below this; 0: not known
  /// Documents longer than `seq` become pieces, as plain texts and [n] arrays always do. Otherwise they are an error.
  bool cut_long = false;
  ThreadPool* pool = nullptr;        ///< tokenizes, if given
  LoadProgress* progress = nullptr;  ///< is told how far the reading is, and may cancel it
  double progress_until = 1;         ///< the share of the whole load that is done behind the reading
};

/// Immutable: any number of threads may read. Copies share everything.
class Dataset {
 public:
  /// Reads a file:
  /// - `.jsonl`, `.json`, `.ndjson`: JSON lines, each an object with `text`; or `prompt` and `completion`, of which the
  ///   completion counts; or `messages`, which go through the tokenizer's chat template (with `tools`, if there), and of which
  ///   the assistant's turns count (see DocumentEncoder). Other members are ignored, and so are blank lines.
  /// - an .npy file of int32 or int64, by its first bytes: [n], one stream, or [rows, s], a document a row. Ids are taken as
  ///   they are: no BOS, no EOS. int32 stays where the file is mapped.
  /// - anything else: plain text, UTF-8, one stream with BOS and EOS.
  /// A stream is cut into pieces of `seq` inputs that follow each other, so that every id is a label once. The file is read
  /// through a mapping and let go behind the reader.
  /// Throws Error, naming the file, and the line or row: invalid_argument (a broken line, a field of another type, a
  /// document that is too long, an id outside of the vocabulary, nothing to train on), unsupported, not_found, io, cancelled.
  static Dataset read(const std::string& path, const DatasetOptions& options);

  /// Documents that are in memory already, under the same rules; errors name them by number, from 1 on.
  static Dataset of(const std::vector<Document>& documents, const DatasetOptions& options);

  int64_t size() const;
  Sample operator[](int64_t index) const;
  /// "line 12": where the sample begins, and in which file.
  std::string where(int64_t index) const;

  int64_t inputs() const;   ///< of all samples
  int64_t targets() const;  ///< that the loss counts, of all samples
  /// Of all ids, of what counts, and of how they are cut: a run that is taken up again compares it.
  uint32_t digest() const;
  /// What a user should know: documents that were left out, conversations that count in whole.
  const std::vector<std::string>& notes() const;

 private:
  friend class DatasetBuilder;
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace plait
