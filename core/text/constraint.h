#pragma once
// Grammars that bound generated text, and one output's state in a grammar: which tokens may come next.
//
// Method: llguidance (crates.io), a lexer of regular expressions' derivatives and an Earley parser over its lexemes, run along a
// prefix tree of all tokens' bytes.
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/text/tokenizer.h"

struct plait_text_grammar;
struct plait_text_constraint;

namespace plait {

/// How a grammar is written.
enum class GrammarKind : int32_t {
  json_schema = 0,  ///< JSON texts that the schema describes
  regex = 1,        ///< the whole text matches; syntax of Rust's regex crate
  lark = 2,         ///< Lark's syntax, as llguidance extends it; the first rule is `start`
  choices = 3,      ///< one of a JSON list of texts
};

/// What may come next. Views of the constraint, until its next call.
struct NextTokens {
  std::span<const uint32_t> mask;   ///< token id is allowed: bit id % 32 of word id / 32
  std::span<const int32_t> forced;  ///< if not empty, instead of a mask: the only continuation
  bool may_end = false;             ///< the text may end here
  bool ended = false;               ///< nothing may follow
};

/// One output's state. Not thread-safe; may move between threads.
class Constraint {
 public:
  /// An independent copy.
  Constraint fork() const;
  /// Appends a token; whether the text is now complete, so that nothing may follow. Throws Error(invalid_argument) for a
  /// token that is not allowed, if `next` was called for this state.
  bool commit(int32_t id);
  /// Computed by the first call for a state: typically 10 to 100 us, at most a second. Throws Error: unsupported (beyond the limits
  /// of work for a token, or the vocabulary cannot write what must follow), out_of_memory, timeout.
  NextTokens next();

 private:
  friend class Grammar;
  struct Free {
    void operator()(plait_text_constraint* constraint) const;
  };
  explicit Constraint(plait_text_constraint* handle) : handle_(handle) {}

  std::unique_ptr<plait_text_constraint, Free> handle_;
};

/// Immutable and thread-safe.
class Grammar {
 public:
  /// Compiles a grammar over the tokenizer's tokens, which it keeps; the tokenizer's first makes their tree (see
  /// Tokenizer::prepare_grammars). Throws Error: invalid_argument (not well-formed, more than 256 KiB, a keyword that cannot be
  /// followed, with its place in the schema; nothing matches), timeout (2 s), out_of_memory (256 MiB).
  static std::shared_ptr<const Grammar> compile(const Tokenizer& tokenizer, GrammarKind kind, std::string_view text);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  /// The state before the first token, whose `next` is known.
  Constraint start() const;

 private:
  explicit Grammar(plait_text_grammar* handle) : handle_(handle) {}

  plait_text_grammar* const handle_;
};

/// The grammars used last, compiled once. Thread-safe.
class GrammarCache {
 public:
  /// As Grammar::compile.
  std::shared_ptr<const Grammar> get(const Tokenizer& tokenizer, GrammarKind kind, std::string_view text);

 private:
  using Key = std::pair<GrammarKind, std::string>;
  struct Entry {
    std::shared_ptr<const Grammar> grammar;
    std::list<const Key*>::iterator used;
  };
  static constexpr size_t most = 128;

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::list<const Key*> order_;  ///< the last used first
};

}  // namespace plait
