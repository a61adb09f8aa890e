#include "core/text/constraint.h"

#include "core/text/abi_calls.h"

namespace plait {

using text_abi::run;
using text_abi::view;

void Constraint::Free::operator()(plait_text_constraint* constraint) const { plait_text_constraint_free(constraint); }

Constraint Constraint::fork() const {
  plait_text_constraint* out = nullptr;
  run([&](auto* error) { return plait_text_constraint_fork(handle_.get(), &out, error); });
  return Constraint(out);
}

bool Constraint::commit(int32_t id) {
  bool ended = false;
  run([&](auto* error) { return plait_text_constraint_commit(handle_.get(), id, &ended, error); });
  return ended;
}

NextTokens Constraint::next() {
  plait_text_next next{};
  run([&](auto* error) { return plait_text_constraint_next(handle_.get(), &next, error); });
  return {{next.mask, next.mask_words}, {next.forced, next.forced_count}, next.may_end, next.ended};
}

std::shared_ptr<const Grammar> Grammar::compile(const Tokenizer& tokenizer, GrammarKind kind, std::string_view text) {
  plait_text_grammar* out = nullptr;
  run([&](auto* error) {
    return plait_text_grammar_create(tokenizer.handle_.get(), static_cast<int32_t>(kind), view(text), &out, error);
  });
  return std::shared_ptr<const Grammar>(new Grammar(out));
}

Grammar::~Grammar() { plait_text_grammar_free(handle_); }

Constraint Grammar::start() const {
  plait_text_constraint* out = nullptr;
  run([&](auto* error) { return plait_text_grammar_start(handle_, &out, error); });
  return Constraint(out);
}

std::shared_ptr<const Grammar> GrammarCache::get(const Tokenizer& tokenizer, GrammarKind kind,
                                                 std::string_view text) {
  const Key key(kind, text);
  {
    std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      order_.splice(order_.begin(), order_, found->second.used);
      return found->second.grammar;
    }
  }
  std::shared_ptr<const Grammar> made = Grammar::compile(tokenizer, kind, text);
  std::lock_guard lock(mutex_);
  const auto [entry, fresh] = entries_.try_emplace(key);
  if (!fresh) return entry->second.grammar;
  order_.push_front(&entry->first);
  entry->second = {made, order_.begin()};
  if (entries_.size() > most) {
    const auto oldest = entries_.find(*order_.back());
    order_.pop_back();
    entries_.erase(oldest);
  }
  return made;
}

}  // namespace plait
