// Whole rows of the Store, gathered from and scattered to their shards: saved sequences, adapters.
#include <limits>
#include <map>
#include <set>

#include "core/base/block.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/generate/ragged_engine.h"
#include "core/passes/adapt/module_names.h"

namespace plait {
namespace {

/// Magic number of saved sequences; tokens, pages of keys and values of every layer, and states follow (`save`).
constexpr uint64_t save_magic = 0x35564B5449414C50;  // "PLAITKV5"

}  // namespace

std::vector<int64_t> RaggedEngine::windows() const {
  std::set<int64_t> out;
  for (const PageGroup& group : decoder().groups) out.insert(group.window);
  return {out.begin(), out.end()};
}

/// In the order of the layers, which is that of every mesh.
std::vector<StoreRow> RaggedEngine::rows_of(const KvSequence& sequence, const Presence& present,
                                            int32_t state) const {
  std::map<int, std::pair<size_t, size_t>> layers;  // group, and place there
  for (size_t group = 0; group < decoder().groups.size(); ++group)
    for (size_t k = 0; k < decoder().groups[group].layers.size(); ++k)
      layers[decoder().groups[group].layers[k]] = {group, k};
  std::vector<StoreRow> out;
  const size_t own = sequence.cache().first_own(sequence);
  for (const auto& [layer, place] : layers) {
    const PageGroup& group = decoder().groups[place.first];
    const std::vector<uint8_t>& pages = present.at(group.window);
    for (size_t page = 0; page < pages.size(); ++page)
      for (const auto half : store_keys::cache_halves)
        if (pages[page])
          out.push_back({store_keys::cache_pages(half, group.pool, static_cast<int64_t>(place.second)),
                         sequence.table(place.first)[own + page], group.stage});
  }
  for (size_t index = 0; state >= 0 && index < decoder().states.size(); ++index)
    out.push_back({store_keys::cache_states(static_cast<int64_t>(index)), state, decoder().states[index].stage});
  return out;
}

/// The rows' bytes, assembled from the parts of the replica's ranks.
std::vector<std::byte> RaggedEngine::read_rows(Replica& replica, const std::vector<StoreRow>& rows) const {
  if (rows.empty()) return {};
  std::vector<int64_t> others = replica.place.ranks;
  std::erase(others, 0);
  if (others.size() < replica.place.ranks.size()) rank_->copy_pages(replica.cache.copies);
  const ReadRows command{rows_on(replica, rows)};
  std::vector<Report> reports;
  if (!others.empty()) {
    receive_all();
    broadcast(command);
    reports = host_->gather(others, RankHost::Patience::deadline);
  }
  std::vector<ByteReader> parts;
  for (const Report& report : reports) parts.push_back(report.reader());
  std::vector<std::byte> out;
  for (const StoreRow& row : rows) {
    const RaggedModel::Row& type = rank_->row_type(row);
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(row)));
    auto put = [&](int64_t rank, const std::byte* part) {
      const RaggedRank::Place at = rank_->place(row, rank);
      put_block({bytes.data(), type.dtype, at.whole}, at.begin,
                {const_cast<std::byte*>(part), type.dtype, type.part});
    };
    if (others.size() < replica.place.ranks.size() && row.stage == rank_->stage()) put(0, rank_->read(row).data());
    for (size_t i = 0; i < others.size(); ++i)
      if (stage_of(others[i]) == row.stage)
        put(others[i], parts[i].get_span(static_cast<size_t>(rank_->part_bytes(row))).data());
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

void RaggedEngine::write_rows(Replica& replica, const std::vector<StoreRow>& rows, std::span<const std::byte> bytes) {
  if (replica.place.first(0)) {
    rank_->copy_pages(replica.cache.copies);
    ByteReader in(bytes, "rows of the cache");
    for (const StoreRow& row : rows) rank_->write(row, in, 0);
  }
  broadcast(WriteRows{rows_on(replica, rows), bytes});
}

std::shared_ptr<const Adapter> RaggedEngine::add_adapter(const std::string& name, const AdapterWeights& given) {
  const AdapterWeights weights = as_products(given, decoder().adapted);
  if (context_ && weights.prefix_tokens() >= context_)
    throw Error(Code::invalid_argument,
                cat("its prefix of ", weights.prefix_tokens(), " tokens leaves none of the context's ", context_));
  std::shared_ptr<const Adapter> out = adapters_.take(name, weights);
  if (out->prefix) write_prefix(out, weights);
  else write_low_rank(*out, weights);
  return out;
}

/// Writes rows on each replica; each rank takes its parts.
void RaggedEngine::write_low_rank(const Adapter& adapter, const AdapterWeights& weights) {
  for (size_t index = 0; index < decoder().adapted.size(); ++index) {
    const auto [a, b] = adapters_.rows(index, weights);
    for (const auto& [half, row] :
         {std::pair(store_keys::AdapterHalf::a, &a), std::pair(store_keys::AdapterHalf::b, &b)})
      for (const auto& replica : replicas_)
        write_rows(*replica, {{store_keys::adapter_slots(half, static_cast<int64_t>(index)), adapter.slot}},
                   {row->data(), static_cast<size_t>(row->bytes())});
  }
}

void RaggedEngine::write_prefix(const std::shared_ptr<const Adapter>& adapter, const AdapterWeights& weights) {
  const PagesOfPrefix parts(decoder(), weights, options_.page_tokens);
  for (const auto& replica : replicas_) {
    replica->drop_prefixes();
    std::unique_ptr<KvSequence> pages = replica->cache.open_prefix(adapter->prefix);
    if (!pages)
      throw Error(Code::out_of_memory,
                  cat("the cache has no space for the ", adapter->prefix, " tokens of its prefix"),
                  "raise cache_bytes, remove other adapters, or add it before requests fill the cache");
    for (size_t group = 0; group < decoder().groups.size(); ++group) {
      const PageGroup& one = decoder().groups[group];
      for (size_t page = 0; page < pages->table(group).size(); ++page)
        for (size_t slot = 0; pages->table(group)[page] >= 0 && slot < one.layers.size(); ++slot)
          for (const auto half : store_keys::cache_halves) {
            const bool values = half == store_keys::CacheHalf::values;
            const Tensor row = parts.row(one.layers[slot], static_cast<int64_t>(page), values);
            const std::string key = store_keys::cache_pages(half, one.pool, static_cast<int64_t>(slot));
            write_rows(*replica, {{key, pages->table(group)[page]}}, {row.data(), static_cast<size_t>(row.bytes())});
          }
    }
    replica->prefixes.push_back({adapter, std::move(pages)});
  }
}

std::vector<std::byte> RaggedEngine::save(const Sequence& sequence) const {
  const KvSequence& source = kv(sequence);
  Replica& replica = replica_of(sequence);
  ByteWriter out;
  out.put(save_magic);
  out.put(static_cast<uint64_t>(decoder().cache_dtype));
  out.put(static_cast<uint64_t>(replica.cache.page_tokens()));
  out.put(static_cast<uint64_t>(decoder().layers.size()));
  out.put(static_cast<uint64_t>(decoder().state_bytes()));
  if (!decoder().length_limits.empty()) out.put(static_cast<uint64_t>(source.prompt()));
  out.put(source.adapter() ? source.adapter()->contents : uint64_t{0});
  out.put_text(source.adapter() ? source.adapter()->name : std::string());
  out.put_list(source.tokens());
  Presence present;
  const int64_t page_tokens = replica.cache.page_tokens();
  const auto held = static_cast<size_t>((source.places() + page_tokens - 1) / page_tokens);
  for (size_t group = 0; group < decoder().groups.size(); ++group) {
    const auto [pages, fresh] = present.try_emplace(decoder().groups[group].window);
    for (size_t page = replica.cache.first_own(source); fresh && source.length() > 0 && page < held; ++page)
      pages->second.push_back(source.table(group)[page] >= 0);
  }
  for (const auto& [window, pages] : present) out.put_list(pages);
  const std::vector<std::byte> rows = read_rows(replica, rows_of(source, present, source.state()));
  out.put_bytes(rows.data(), rows.size());
  return out.take();
}

std::unique_ptr<Sequence> RaggedEngine::restore(std::span<const std::byte> bytes, std::span<const SavedRows> saved) {
  ByteReader in(bytes, "the saved conversation", "it must come from the same model, dtype and version");
  auto number = [&] { return in.get<uint64_t>(); };
  if (number() != save_magic) in.fail("is not one");
  if (number() != static_cast<uint64_t>(decoder().cache_dtype) ||
      number() != static_cast<uint64_t>(options_.page_tokens) || number() != decoder().layers.size() ||
      number() != static_cast<uint64_t>(decoder().state_bytes()))
    in.fail("is of another model or dtype");
  const uint64_t prompt = decoder().length_limits.empty() ? 0 : number();
  if (prompt > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) in.fail("has no such prompt");
  const uint64_t contents = number();
  const std::string name = in.get_text();
  std::shared_ptr<const Adapter> adapter = name.empty() ? nullptr : adapters_.find(contents);
  if (!adapter && !name.empty())
    throw Error(
        Code::not_found,
        cat("the saved conversation was computed with an adapter, then called ", quote(name), ", that is not there"),
        "add that adapter first, as it was");
  auto tokens = in.get_list<int32_t>();
  for (int32_t& token : tokens) {
    const bool is_row = token < 0;
    if (is_row) token = restored_id(saved, token);
    if (is_row ? token >= 0 : token >= vocabulary_) in.fail("holds a token that the model does not have");
  }
  std::unique_ptr<Sequence> opened = open({}, 0, std::move(adapter), nullptr);
  KvSequence& sequence = kv(*opened);
  if (!tokens.empty() && !sequence.cache().reserve(sequence, static_cast<int64_t>(tokens.size())))
    throw Error(Code::out_of_memory, cat("the cache has no space for a conversation of ", tokens.size(), " tokens"),
                "raise cache_bytes, or release other conversations");
  Presence present;
  for (int64_t window : windows()) present[window] = in.get_list<uint8_t>();
  const size_t own = sequence.cache().first_own(sequence);
  for (size_t group = 0; group < decoder().groups.size(); ++group) {
    const std::vector<uint8_t>& pages = present.at(decoder().groups[group].window);
    if (pages.size() != (tokens.empty() ? 0 : sequence.table(group).size() - own))
      in.fail("does not have the pages of its tokens");
    for (size_t page = 0; page < pages.size(); ++page)
      if (pages[page] && sequence.table(group)[own + page] < 0) in.fail("has pages that a window has passed");
  }
  const std::vector<StoreRow> rows = rows_of(sequence, present, sequence.next_state());
  size_t size = 0;
  for (const StoreRow& row : rows) size += static_cast<size_t>(row_bytes(row));
  const std::span<const std::byte> bytes_of_rows = in.get_span(size);
  if (!in.at_end()) in.fail("is longer than its tokens");
  write_rows(replica_of(sequence), rows, bytes_of_rows);
  sequence.cache().adopt(sequence, tokens, static_cast<int64_t>(prompt));
  return opened;
}

}  // namespace plait
