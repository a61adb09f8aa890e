#pragma once
// Paged KV cache: allocation of pages of tokens and of state slots. The bytes are in the Store.
//
// Pages come from fixed pools. Full pages with equal tokens and equal predecessors are one page, found by the hash of
// the token chain; they stay cached after their last user and are evicted in LRU order (PagedAttention, Kwon et al.
// 2023; automatic prefix caching as in vLLM). Layers with a sliding window free the pages that the window has passed.
//
// With a prefix adapter, the prefix's places come before the tokens': the sequence starts as a fork of the one that
// holds the prefix and no tokens (`open_prefix`). All indices below count places.
//
// A slot holds the recurrent states at a sequence's end (StateShape in core/passes/base/decoder.h). Slots in use are
// read-only: a step writes a new one, and the old one is freed after its last reader has moved on. A decoder with
// states has no prefix caching: pages are useless without the states at their end.
#include <list>
#include <memory>
#include <span>
#include <tuple>
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
  /// Page j holds places [j * page_tokens, (j + 1) * page_tokens) of group `group`; -1 if freed.
  const std::vector<int32_t>& table(size_t group) const { return tables_[group]; }
  /// The slot of the states after the last token; -1 before the first token and for decoders without states.
  int32_t state() const { return state_; }
  /// The slot that the current step writes; -1 outside of steps unless reserved.
  int32_t next_state() const { return next_state_; }
  int64_t prompt() const { return prompt_; }  ///< how many tokens form the prompt; 0: nothing fed yet

 private:
  friend class KvCache;
  KvCache& cache_;
  int64_t prompt_ = 0;
  std::vector<std::vector<int32_t>> tables_;  ///< by group
  std::vector<uint64_t> chain_;               ///< hash after each full page
  int32_t state_ = -1, next_state_ = -1;
};

/// Capacity of the cache.
struct CacheCapacity {
  std::vector<int64_t> pages;  ///< of each pool
  /// Slots held between steps, and extra ones written by the sequences of a step; 0: no states.
  int64_t held_states = 0, spare_states = 0;
  int64_t states() const { return held_states + spare_states; }

  auto fields() { return std::tie(pages, held_states, spare_states); }
};

class KvCache {
 public:
  KvCache(const Decoder& decoder, const CacheCapacity& capacity, int64_t page_tokens);

  /// `prefix`: the result of `open_prefix` if the adapter is a prefix; otherwise null.
  std::unique_ptr<KvSequence> open(std::span<const int32_t> tokens, int64_t prompt = 0,
                                   std::shared_ptr<const Adapter> adapter = nullptr,
                                   const KvSequence* prefix = nullptr);
  /// Allocates pages for an adapter's prefix, filled by the caller; places below each group's window get none. The
  /// sequence only owns the pages, it does not hold the adapter. Null if out of memory.
  std::unique_ptr<KvSequence> open_prefix(int64_t places);
  std::unique_ptr<KvSequence> fork(const KvSequence& sequence);
  bool reserve(KvSequence& sequence, int64_t tokens);
  bool could_fit(int64_t places) const;
  /// No later sequence finds what earlier ones computed.
  void forget_pages();
  /// Assigns the slot that the step writes. Memory must have been reserved; throws Error(out_of_memory) if a fork
  /// made since then took it.
  void begin_step(KvSequence& sequence);
  /// Rolls the sequence back after a failed step.
  void abandon_step(KvSequence& sequence);
  /// Appends tokens whose keys and values are now in the reserved pages.
  void commit(KvSequence& sequence, std::span<const int32_t> tokens);
  /// Takes the memory that `commit` of so many tokens needs, which then cannot fail.
  void prepare_commit(KvSequence& sequence, size_t tokens) const;
  /// Same for pages filled from outside, which contain nothing below each group's window.
  void adopt(KvSequence& sequence, std::span<const int32_t> tokens, int64_t prompt);
  /// Bit mask of the decoder's length limits that a prompt ending at that place exceeds: sequences with different
  /// masks share no pages, since their tokens are computed differently.
  uint64_t exceeded(int64_t places) const;
  /// The first page with tokens, after pages that hold only the prefix.
  size_t first_own(const KvSequence& sequence) const { return static_cast<size_t>(sequence.prefix() / page_tokens_); }

  /// Page copies due before the next step writes. Cleared by the caller.
  struct Copy {
    int pool;
    int32_t from, to;
  };
  std::vector<Copy> copies;

  int64_t page_tokens() const { return page_tokens_; }
  int64_t sequences() const { return sequences_; }
  int64_t pages() const;
  int64_t pages_free() const;  ///< unused, or cached without users
  int64_t pages_shared() const;
  int64_t prefix_hits() const { return prefix_hits_; }
  int64_t states() const { return held_states_; }
  int64_t states_free() const { return held_states_ - states_in_use(); }

 private:
  friend class KvSequence;
  struct Page {
    int32_t users = 0;
    uint64_t hash = 0;   ///< of the chain up to this page, if published
    int32_t group = -1;  ///< published for this group; -1: not published
    int32_t before = -1, after = -1;  ///< of idle pages: its neighbours in their list
  };
  /// Releasing a page takes no memory: destructors do it.
  struct Pool {
    std::vector<Page> pages;
    std::vector<int32_t> free;                   ///< with room for all pages
    int32_t oldest = -1, newest = -1, idle = 0;  ///< a list of published pages without users, and its length

    void append_idle(int32_t page);
    void remove_idle(int32_t page);
  };
  struct Entry {
    std::vector<int32_t> tokens;  ///< of this page, compared since hashes may collide
    uint64_t parent = 0;
    std::vector<int32_t> pages;  ///< by group
  };

  int32_t take(int pool);
  void retain(int pool, int32_t page);
  void release(int pool, int32_t page);
  void retain_all(KvSequence& sequence, std::vector<std::vector<int32_t>> tables);
  void publish(KvSequence& sequence, size_t page);
  Entry* entry_of(uint64_t parent, std::span<const int32_t> tokens, uint64_t& hash);
  void slide(KvSequence& sequence);
  /// Frees a group's pages below page `first`.
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
  /// The part of `tokens`, those of a sequence, that is in page `page`.
  std::span<const int32_t> tokens_of(const KvSequence& sequence, std::span<const int32_t> tokens, size_t page) const;
  /// The initial value of the hash chain: differs where tokens are computed differently.
  uint64_t root(const KvSequence& sequence) const;
  const Entry* lookup(uint64_t parent, std::span<const int32_t> tokens, uint64_t& hash) const;
  /// The first page that group `group` still needs when the next token's place is `places`.
  int64_t first_needed(size_t group, int64_t places) const;

  std::vector<PageGroup> groups_;
  std::vector<int64_t> length_limits_;
  std::vector<Pool> pools_;
  int64_t page_tokens_;
  std::unordered_map<uint64_t, Entry> entries_;
  int64_t prefix_hits_ = 0, sequences_ = 0;
  std::vector<int32_t> state_users_, free_states_;  ///< by slot; free slots, the next one last
  int64_t held_states_ = 0;
};

}  // namespace plait
