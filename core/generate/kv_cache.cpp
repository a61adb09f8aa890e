#include "core/generate/kv_cache.h"

#include <algorithm>

#include "core/base/counter_random.h"
#include "core/base/error.h"

namespace plait {

/// Room for `size` elements, so that they are added without memory.
template <class T>
static void make_room(std::vector<T>& list, size_t size) {
  if (size > list.capacity()) list.reserve(std::max(size, 2 * list.capacity()));
}

KvSequence::KvSequence(KvCache& cache) : cache_(cache) { ++cache_.sequences_; }

KvSequence::~KvSequence() {
  --cache_.sequences_;
  for (size_t group = 0; group < tables_.size(); ++group)
    for (int32_t page : tables_[group])
      if (page >= 0) cache_.release(cache_.groups_[group].pool, page);
  cache_.release_state(state_);
  cache_.release_state(next_state_);
}

KvCache::KvCache(const Decoder& decoder, const CacheCapacity& capacity, int64_t page_tokens)
    : groups_(decoder.groups),
      length_limits_(decoder.length_limits),
      page_tokens_(page_tokens),
      held_states_(capacity.held_states) {
  state_users_.resize(static_cast<size_t>(capacity.held_states + capacity.spare_states));
  free_states_.reserve(state_users_.size());
  for (size_t slot = state_users_.size(); slot-- > 0;) free_states_.push_back(static_cast<int32_t>(slot));
  for (int64_t count : capacity.pages) {
    Pool pool;
    pool.pages.resize(static_cast<size_t>(count));
    pool.free.reserve(static_cast<size_t>(count));
    for (int64_t page = count; page-- > 0;)
      pool.free.push_back(static_cast<int32_t>(page));  // the lowest is taken first
    pools_.push_back(std::move(pool));
  }
}

int32_t KvCache::take_state() {
  PLAIT_ASSERT(!free_states_.empty());
  const int32_t slot = free_states_.back();
  free_states_.pop_back();
  state_users_[static_cast<size_t>(slot)] = 1;
  return slot;
}

void KvCache::release_state(int32_t& slot) {
  if (slot >= 0 && --state_users_[static_cast<size_t>(slot)] == 0) free_states_.push_back(slot);
  slot = -1;
}

/// A sequence that is the only reader of its slot frees it when it takes a new one.
bool KvCache::needs_state(const KvSequence& sequence) const {
  const bool alone = sequence.state_ >= 0 && state_users_[static_cast<size_t>(sequence.state_)] == 1;
  return has_states() && sequence.next_state_ < 0 && !alone;
}

void KvCache::begin_step(KvSequence& sequence) {
  if (!has_states() || sequence.next_state_ >= 0) return;
  if (needs_state(sequence) && states_in_use() >= held_states_)
    throw Error(Code::out_of_memory, "the cache has no space for the states of this sequence",
                "raise cache_bytes, or release other conversations");
  sequence.next_state_ = take_state();
}

void KvCache::abandon_step(KvSequence& sequence) {
  const bool alone = sequence.state_ >= 0 && state_users_[static_cast<size_t>(sequence.state_)] == 1;
  if (alone) release_state(sequence.next_state_);
}

void KvCache::advance_state(KvSequence& sequence) {
  if (!has_states()) return;
  release_state(sequence.state_);
  std::swap(sequence.state_, sequence.next_state_);
}

void KvCache::Pool::append_idle(int32_t page) {
  Page& info = pages[static_cast<size_t>(page)];
  info.before = newest;
  info.after = -1;
  (newest < 0 ? oldest : pages[static_cast<size_t>(newest)].after) = page;
  newest = page;
  ++idle;
}

void KvCache::Pool::remove_idle(int32_t page) {
  Page& info = pages[static_cast<size_t>(page)];
  (info.before < 0 ? oldest : pages[static_cast<size_t>(info.before)].after) = info.after;
  (info.after < 0 ? newest : pages[static_cast<size_t>(info.after)].before) = info.before;
  info.before = info.after = -1;
  --idle;
}

int64_t KvCache::available(int pool) const {
  const Pool& row = pools_[static_cast<size_t>(pool)];
  return static_cast<int64_t>(row.free.size()) + row.idle;
}

int32_t KvCache::take(int pool) {
  Pool& row = pools_[static_cast<size_t>(pool)];
  if (row.free.empty()) {
    PLAIT_ASSERT(row.idle > 0);
    const int32_t page = row.oldest;
    row.remove_idle(page);
    Page& info = row.pages[static_cast<size_t>(page)];
    auto entry = entries_.find(info.hash);
    if (entry != entries_.end()) {
      entry->second.pages[static_cast<size_t>(info.group)] = -1;
      bool empty =
          std::all_of(entry->second.pages.begin(), entry->second.pages.end(), [](int32_t one) { return one < 0; });
      if (empty) entries_.erase(entry);
    }
    info = {};
    row.free.push_back(page);
  }
  int32_t page = row.free.back();
  row.free.pop_back();
  row.pages[static_cast<size_t>(page)].users = 1;
  return page;
}

void KvCache::retain(int pool, int32_t page) {
  Pool& row = pools_[static_cast<size_t>(pool)];
  Page& info = row.pages[static_cast<size_t>(page)];
  if (info.users++ == 0) row.remove_idle(page);
}

void KvCache::release(int pool, int32_t page) {
  Pool& row = pools_[static_cast<size_t>(pool)];
  Page& info = row.pages[static_cast<size_t>(page)];
  if (--info.users) return;
  if (info.group < 0) {
    row.free.push_back(page);
    return;
  }
  row.append_idle(page);
}

const KvCache::Entry* KvCache::lookup(uint64_t parent, std::span<const int32_t> tokens, uint64_t& hash) const {
  hash = parent;
  // From 1, since (0, 0) mixes to 0: pages of zeros would all have one hash.
  for (int32_t token : tokens) hash = mixed_bits(hash, uint64_t{static_cast<uint32_t>(token)} + 1);
  auto found = entries_.find(hash);
  if (found == entries_.end() || found->second.parent != parent ||
      !std::equal(tokens.begin(), tokens.end(), found->second.tokens.begin(), found->second.tokens.end()))
    return nullptr;
  return &found->second;
}

int64_t KvCache::first_needed(size_t group, int64_t places) const {
  int64_t window = groups_[group].window;
  return window ? std::max<int64_t>(0, places - window + 1) / page_tokens_ : 0;
}

uint64_t KvCache::exceeded(int64_t places) const {
  uint64_t bits = 0;
  for (int64_t limit : length_limits_) bits = 2 * bits + (places > limit);
  return bits;
}

std::span<const int32_t> KvCache::tokens_of(const KvSequence& sequence, std::span<const int32_t> tokens,
                                            size_t page) const {
  const int64_t begin = static_cast<int64_t>(page) * page_tokens_ - sequence.prefix();
  const auto first = static_cast<size_t>(std::max<int64_t>(begin, 0));
  return tokens.subspan(first, static_cast<size_t>(begin + page_tokens_) - first);
}

uint64_t KvCache::root(const KvSequence& sequence) const {
  const uint64_t number = sequence.adapter_ ? sequence.adapter_->number : 0;
  return (number << length_limits_.size()) + exceeded(sequence.prefix() + sequence.prompt_);
}

/// The pages become the sequence's, too.
void KvCache::retain_all(KvSequence& sequence, std::vector<std::vector<int32_t>> tables) {
  for (size_t group = 0; group < groups_.size(); ++group)
    for (int32_t page : tables[group])
      if (page >= 0) retain(groups_[group].pool, page);
  sequence.tables_ = std::move(tables);
}

std::unique_ptr<KvSequence> KvCache::open_prefix(int64_t places) {
  auto sequence = std::make_unique<KvSequence>(*this);
  sequence->tables_.resize(groups_.size());
  if (!reserve(*sequence, places)) return nullptr;
  for (size_t group = 0; group < groups_.size(); ++group) give_back(*sequence, group, first_needed(group, places));
  return sequence;
}

std::unique_ptr<KvSequence> KvCache::open(std::span<const int32_t> tokens, int64_t prompt,
                                          std::shared_ptr<const Adapter> adapter, const KvSequence* prefix) {
  auto sequence = std::make_unique<KvSequence>(*this);
  sequence->prompt_ = prompt ? prompt : static_cast<int64_t>(tokens.size());
  sequence->adapter_ = std::move(adapter);
  sequence->tables_.resize(groups_.size());
  std::vector<std::vector<int32_t>> tables(groups_.size());
  if (prefix) tables = prefix->tables_;
  const size_t own = first_own(*sequence);
  sequence->chain_.assign(own, root(*sequence));
  std::vector<const Entry*> chain(own);
  const auto most =
      has_states() || tokens.empty()
          ? own
          : static_cast<size_t>((sequence->prefix() + static_cast<int64_t>(tokens.size()) - 1) / page_tokens_);
  uint64_t hash = root(*sequence);
  for (size_t page = own; page < most; ++page) {
    uint64_t next;
    const Entry* entry = lookup(hash, tokens_of(*sequence, tokens, page), next);
    if (!entry) break;
    chain.push_back(entry);
    sequence->chain_.push_back(hash = next);
  }
  // The longest prefix for which every group still has all pages in its window.
  auto usable = [&](size_t pages) {
    for (size_t group = 0; group < groups_.size(); ++group)
      for (size_t page = std::max(own, static_cast<size_t>(first_needed(group, places_of(pages)))); page < pages;
           ++page)
        if (chain[page]->pages[group] < 0) return false;
    return true;
  };
  size_t pages = chain.size();
  while (pages > own && !usable(pages)) --pages;
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<int32_t>& table = tables[group];
    if (pages > own) table.resize(own);  // the page that was found contains the rest of the prefix
    const auto needed = static_cast<size_t>(first_needed(group, places_of(pages)));
    for (size_t page = 0; page < std::min(table.size(), needed); ++page) table[page] = -1;
    for (size_t page = own; page < pages; ++page) table.push_back(page >= needed ? chain[page]->pages[group] : -1);
  }
  sequence->chain_.resize(pages);
  if (pages > own) {
    const int64_t found = places_of(pages) - sequence->prefix();
    sequence->tokens_.assign(tokens.begin(), tokens.begin() + found);
    prefix_hits_ += found;
  }
  retain_all(*sequence, std::move(tables));
  return sequence;
}

std::unique_ptr<KvSequence> KvCache::fork(const KvSequence& other) {
  auto sequence = std::make_unique<KvSequence>(*this);
  sequence->prompt_ = other.prompt_;
  sequence->adapter_ = other.adapter_;
  sequence->tokens_ = other.tokens_;
  sequence->chain_ = other.chain_;
  std::vector<std::vector<int32_t>> tables = other.tables_;
  auto held = static_cast<size_t>((other.places() + page_tokens_ - 1) / page_tokens_);
  for (auto& table : tables) table.resize(std::min(table.size(), held));  // pages reserved ahead stay with the other sequence
  retain_all(*sequence, std::move(tables));
  if (other.state_ >= 0) ++state_users_[static_cast<size_t>(sequence->state_ = other.state_)];
  return sequence;
}

bool KvCache::reserve(KvSequence& sequence, int64_t tokens) {
  int64_t places = sequence.places();
  auto wanted = static_cast<size_t>((places + tokens + page_tokens_ - 1) / page_tokens_);
  auto last = static_cast<size_t>(places / page_tokens_);
  bool half_full = places % page_tokens_ != 0;
  auto must_copy = [&](size_t group) {
    const auto& table = sequence.tables_[group];
    return half_full && table[last] >= 0 &&
           pools_[static_cast<size_t>(groups_[group].pool)].pages[static_cast<size_t>(table[last])].users > 1;
  };
  std::vector<int64_t> needed(pools_.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    size_t have = sequence.tables_[group].size();
    needed[static_cast<size_t>(groups_[group].pool)] +=
        static_cast<int64_t>(wanted > have ? wanted - have : 0) + must_copy(group);
  }
  for (size_t pool = 0; pool < pools_.size(); ++pool)
    if (needed[pool] > available(static_cast<int>(pool))) return false;
  copies.reserve(copies.size() + groups_.size());
  for (auto& table : sequence.tables_) make_room(table, wanted);
  if (needs_state(sequence)) {
    if (states_in_use() >= held_states_) return false;
    sequence.next_state_ = take_state();
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    int pool = groups_[group].pool;
    auto& table = sequence.tables_[group];
    if (must_copy(group)) {
      int32_t fresh = take(pool);
      copies.push_back({pool, table[last], fresh});
      release(pool, table[last]);
      table[last] = fresh;
    }
    while (table.size() < wanted) table.push_back(take(pool));
  }
  return true;
}

bool KvCache::could_fit(int64_t places) const {
  std::vector<int64_t> needed(pools_.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    int64_t all = (places + page_tokens_ - 1) / page_tokens_;
    // A window needs its own tokens, rounded out to pages, and at least the page being written.
    int64_t window = groups_[group].window ? (groups_[group].window + page_tokens_ - 2) / page_tokens_ + 2 : all;
    needed[static_cast<size_t>(groups_[group].pool)] += std::min(all, window);
  }
  for (size_t pool = 0; pool < pools_.size(); ++pool)
    if (needed[pool] > static_cast<int64_t>(pools_[pool].pages.size())) return false;
  return true;
}

void KvCache::forget_pages() {
  for (Pool& pool : pools_) {
    while (pool.idle > 0) {
      pool.free.push_back(pool.oldest);
      pool.remove_idle(pool.oldest);
    }
    for (Page& page : pool.pages) page = {.users = page.users};
  }
  entries_.clear();
}

void KvCache::prepare_commit(KvSequence& sequence, size_t tokens) const {
  make_room(sequence.tokens_, sequence.tokens_.size() + tokens);
  make_room(sequence.chain_, (static_cast<size_t>(sequence.places()) + tokens) / static_cast<size_t>(page_tokens_));
}

void KvCache::commit(KvSequence& sequence, std::span<const int32_t> tokens) {
  prepare_commit(sequence, tokens.size());
  sequence.tokens_.insert(sequence.tokens_.end(), tokens.begin(), tokens.end());
  advance_state(sequence);
  if (!sequence.prompt_) sequence.prompt_ = sequence.length();
  auto full = static_cast<size_t>(sequence.places() / page_tokens_);
  for (size_t page = sequence.chain_.size(); page < full; ++page) publish(sequence, page);
  slide(sequence);
}

void KvCache::adopt(KvSequence& sequence, std::span<const int32_t> tokens, int64_t prompt) {
  sequence.tokens_.assign(tokens.begin(), tokens.end());
  if (!tokens.empty()) advance_state(sequence);
  sequence.prompt_ = prompt;
  slide(sequence);  // before publishing: pages below a window were never filled
  for (size_t page = sequence.chain_.size(); page < static_cast<size_t>(sequence.places() / page_tokens_); ++page)
    publish(sequence, page);
}

/// The entry of these tokens, made if there is none. Null: they are not cached, since another chain has the same hash or there is no memory
/// for the entry; both are legal.
KvCache::Entry* KvCache::entry_of(uint64_t parent, std::span<const int32_t> tokens, uint64_t& hash) {
  const Entry* known = lookup(parent, tokens, hash);
  if (known) return const_cast<Entry*>(known);
  try {
    Entry made{{tokens.begin(), tokens.end()}, parent, std::vector<int32_t>(groups_.size(), -1)};
    const auto [place, fresh] = entries_.try_emplace(hash, std::move(made));
    return fresh ? &place->second : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void KvCache::publish(KvSequence& sequence, size_t page) {
  if (has_states()) return;
  uint64_t hash = 0;
  Entry* found = entry_of(page ? sequence.chain_[page - 1] : root(sequence), tokens_of(sequence, sequence.tokens_, page), hash);
  sequence.chain_.push_back(hash);
  if (!found) return;
  Entry& entry = *found;
  for (size_t group = 0; group < groups_.size(); ++group) {
    int32_t mine = sequence.tables_[group][page];
    if (mine < 0 || entry.pages[group] >= 0) continue;
    Page& info = pools_[static_cast<size_t>(groups_[group].pool)].pages[static_cast<size_t>(mine)];
    if (info.group >= 0) continue;  // already published for another chain
    entry.pages[group] = mine;
    info.hash = hash;
    info.group = static_cast<int32_t>(group);
  }
}

void KvCache::slide(KvSequence& sequence) {
  for (size_t group = 0; group < groups_.size(); ++group)
    give_back(sequence, group, first_needed(group, sequence.places()));
}

void KvCache::give_back(KvSequence& sequence, size_t group, int64_t first) {
  auto& table = sequence.tables_[group];
  for (int64_t page = std::min(first, static_cast<int64_t>(table.size()));
       page-- > 0 && table[static_cast<size_t>(page)] >= 0;) {
    release(groups_[group].pool, table[static_cast<size_t>(page)]);
    table[static_cast<size_t>(page)] = -1;
  }
}

int64_t KvCache::pages() const {
  int64_t sum = 0;
  for (const Pool& pool : pools_) sum += static_cast<int64_t>(pool.pages.size());
  return sum;
}

int64_t KvCache::pages_free() const {
  int64_t sum = 0;
  for (size_t pool = 0; pool < pools_.size(); ++pool) sum += available(static_cast<int>(pool));
  return sum;
}

int64_t KvCache::pages_shared() const {
  int64_t sum = 0;
  for (const Pool& pool : pools_)
    sum += std::count_if(pool.pages.begin(), pool.pages.end(), [](const Page& page) { return page.users > 1; });
  return sum;
}

}  // namespace plait
