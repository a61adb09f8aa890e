#pragma once
// Which page holds which tokens, and which slot whose states: the book-keeping of the cache. The bytes are the store's.
//
// Pages are handed out one by one under a fixed number of them. Full pages whose tokens, and all tokens before them,
// are equal are the same page: they are found by the hash of the chain of tokens, stay after their last user is gone,
// and are taken back, longest unused first, when room is needed (PagedAttention, Kwon et al. 2023; automatic prefix
// caching as in vLLM). Layers with a sliding window give pages back as the window passes them.
//
// A sequence whose adapter is a prefix has the prefix's places before its tokens': it begins as a fork of the sequence that
// holds the prefix and no tokens (`open_prefix`), and all below counts places.
//
// A slot holds the states of a sequence at its end (StateShape in core/passes/base/decoder.h). Nobody writes to a slot that is
// in use: a step leaves the new states in another one, and the old one is free once all who read it have gone on. A
// decoder with states finds no prefixes again: pages without the states at their end are of no use to it.
#include <list>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/generate/engine.h"

namespace plait {

class KvCache;

class KvSequence : public Sequence {
 public:
  explicit KvSequence(KvCache& cache);
  ~KvSequence() override;
  KvCache& cache() const { return cache_; }
  /// Places of the prefix and the tokens.
  int64_t places() const { return prefix() + length(); }
  /// Page of places [j * page_tokens, (j + 1) * page_tokens) in group `group`, -1 where it was given back.
  const std::vector<int32_t>& table(size_t group) const { return tables_[group]; }
  /// The slot of the states behind the last token; -1 before the first, and where the decoder has no states.
  int32_t state() const { return state_; }
  /// The slot that the step at hand writes; -1 outside of steps, unless it was reserved.
  int32_t next_state() const { return next_state_; }
  int64_t prompt() const { return prompt_; }  ///< how many of the tokens are a prompt; 0: none was fed yet

 private:
  friend class KvCache;
  KvCache& cache_;
  int64_t prompt_ = 0;
  std::vector<std::vector<int32_t>> tables_;  ///< by group
  std::vector<uint64_t> chain_;               ///< hash after each full page
  int32_t state_ = -1, next_state_ = -1;
};

/// What there is room for.
struct CacheRoom {
  std::vector<int64_t> pages;  ///< of each pool
  /// Slots that sequences may hold between steps, and more for what the sequences of a step write; 0: no states.
  int64_t held_states = 0, spare_states = 0;
};

class KvCache {
 public:
  KvCache(const Decoder& decoder, const CacheRoom& room, int64_t page_tokens);

  /// `prefix`: what `open_prefix` made for the adapter, where it is one; else null.
  std::unique_ptr<KvSequence> open(std::span<const int32_t> tokens, int64_t prompt = 0,
                                   std::shared_ptr<const Adapter> adapter = nullptr,
                                   const KvSequence* prefix = nullptr);
  /// Pages for an adapter's prefix, to be filled from outside; what stands below each group's window has none. The sequence
  /// is for its pages alone, and does not hold the adapter. Null: there is no room.
  std::unique_ptr<KvSequence> open_prefix(int64_t places);
  std::unique_ptr<KvSequence> fork(const KvSequence& sequence);
  bool reserve(KvSequence& sequence, int64_t tokens);
  bool could_fit(int64_t places) const;
  /// Gives the sequence the slot that the step writes. Room must have been reserved; throws Error(out_of_memory) where a
  /// copy that was made since took it.
  void begin_step(KvSequence& sequence);
  /// The step failed: the sequence is as it was.
  void abandon_step(KvSequence& sequence);
  /// Says that the tokens' keys and values are in the pages reserved for them.
  void commit(KvSequence& sequence, std::span<const int32_t> tokens);
  /// The same for tokens whose pages came from outside, and hold nothing below each group's window.
  void adopt(KvSequence& sequence, std::span<const int32_t> tokens, int64_t prompt);
  /// Which of the decoder's length limits a prompt that ends at that place exceeds, as bits: sequences of unequal bits share
  /// no pages, since their tokens are computed otherwise.
  uint64_t exceeded(int64_t places) const;
  /// The first page that holds tokens, behind those of a prefix alone.
  size_t first_own(const KvSequence& sequence) const { return static_cast<size_t>(sequence.prefix() / page_tokens_); }

  /// Pages that must be copied before the next step writes. Cleared by the caller.
  struct Copy {
    int pool;
    int32_t from, to;
  };
  std::vector<Copy> copies;

  int64_t page_tokens() const { return page_tokens_; }
  int64_t sequences() const { return sequences_; }
  int64_t pages() const;
  int64_t pages_free() const;  ///< unused, or kept only in the hope of being found again
  int64_t pages_shared() const;
  int64_t prefix_hits() const { return prefix_hits_; }
  int64_t states() const { return held_states_; }
  int64_t states_free() const { return held_states_ - states_in_use(); }

 private:
  friend class KvSequence;
  struct Page {
    int32_t users = 0;
    uint64_t hash = 0;   ///< of the chain that ends with this page, when published
    int32_t group = -1;  ///< published for this group; -1: not published
    int64_t idle_since = 0;
  };
  struct Pool {
    std::vector<Page> pages;
    std::vector<int32_t> free;
    std::map<int64_t, int32_t> idle;  ///< published pages without users, by when they became idle
  };
  struct Entry {
    std::vector<int32_t> tokens;  ///< of this page: a hash alone is no proof
    uint64_t parent = 0;
    std::vector<int32_t> pages;  ///< by group
  };

  int32_t take(int pool);
  void retain(int pool, int32_t page);
  void release(int pool, int32_t page);
  void publish(KvSequence& sequence, size_t page);
  void slide(KvSequence& sequence);
  /// The pages of a group below page `first`.
  void give_back(KvSequence& sequence, size_t group, int64_t first);
  int64_t places_of(size_t pages) const { return static_cast<int64_t>(pages) * page_tokens_; }
  bool has_states() const { return !state_users_.empty(); }
  int64_t states_in_use() const { return static_cast<int64_t>(state_users_.size() - free_states_.size()); }
  int32_t take_state();
  void release_state(int32_t& slot);
  /// Whether the next step of the sequence leaves one more slot in use.
  bool needs_state(const KvSequence& sequence) const;
  void advance_state(KvSequence& sequence);
  int64_t available(int pool) const;
  /// Those of `tokens`, a sequence's, that page `page` holds.
  std::span<const int32_t> tokens_of(const KvSequence& sequence, std::span<const int32_t> tokens, size_t page) const;
  /// What chains of pages begin with: unequal where tokens are computed otherwise.
  uint64_t root(const KvSequence& sequence) const;
  const Entry* lookup(uint64_t parent, std::span<const int32_t> tokens, uint64_t& hash) const;
  /// The first page that group `group` still needs when the next token's place is `places`.
  int64_t first_needed(size_t group, int64_t places) const;

  std::vector<PageGroup> groups_;
  std::vector<int64_t> length_limits_;
  std::vector<Pool> pools_;
  int64_t page_tokens_;
  std::unordered_map<uint64_t, Entry> entries_;
  int64_t clock_ = 0;
  int64_t prefix_hits_ = 0, sequences_ = 0;
  std::vector<int32_t> state_users_, free_states_;  ///< by slot; those without users, the next one last
  int64_t held_states_ = 0;
};

}  // namespace plait
