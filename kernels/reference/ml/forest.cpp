#include "kernels/reference/ml/forest.h"

#include <algorithm>
#include <map>

#include "kernels/reference/ml/lists.h"

namespace plait::reference {
namespace {

constexpr int64_t max_nodes = INT32_MAX;

[[noreturn]] void fail_forest(std::string message) { throw Error(Code::bad_model, std::move(message)); }

/// Reads lists of one length, and their entries within limits.
class NodeLists {
 public:
  explicit NodeLists(const Attributes& attributes) : attributes_(attributes) {}

  /// Throws unless the list has `size` entries, each in [least, most].
  std::vector<int64_t> ints(const std::string& name, size_t size, int64_t least, int64_t most) const {
    std::vector<int64_t> out = attributes_.integers(name);
    check_size(name, out.size(), size);
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i] < least || out[i] > most)
        fail_forest(
            cat("entry ", i, " of attribute ", quote(name), " is ", out[i], ", expected ", least, " to ", most));
    return out;
  }
  /// Zeros if absent.
  std::vector<int64_t> flags(const std::string& name, size_t size, bool optional) const {
    if (optional && attributes_.integers(name).empty()) return std::vector<int64_t>(size);
    return ints(name, size, INT64_MIN, INT64_MAX);
  }
  /// Of the list, or of a tensor with the name's suffix "_as_tensor".
  std::vector<double> reals(const std::string& name, size_t size) const {
    std::vector<double> out = reals_of(attributes_, name);
    if (out.empty()) out = reals_of(attributes_, name + "_as_tensor");
    check_size(name, out.size(), size);
    return out;
  }

 private:
  static void check_size(const std::string& name, size_t got, size_t expected) {
    if (got != expected) fail_forest(cat("attribute ", quote(name), " has ", got, " entries, expected ", expected));
  }
  const Attributes& attributes_;
};

/// Walks each tree once: a branch that is reached from itself has no end.
void check_ends(const Forest& forest) {
  enum : uint8_t { unseen, open, closed };
  std::vector<uint8_t> state(forest.branches.size(), unseen);
  for (TreePlace root : forest.roots) {
    std::vector<TreePlace> path{root};
    while (!path.empty()) {
      const TreePlace at = path.back();
      if (at < 0 || state[static_cast<size_t>(at)] != unseen) {
        if (at >= 0) state[static_cast<size_t>(at)] = closed;
        path.pop_back();
        continue;
      }
      state[static_cast<size_t>(at)] = open;
      const TreeBranch& branch = forest.branches[static_cast<size_t>(at)];
      for (TreePlace next : {branch.if_false, branch.if_true}) {
        if (next >= 0 && state[static_cast<size_t>(next)] == open)
          fail_forest(cat("the trees have a cycle: branch ", next, " is below itself"));
        if (next >= 0 && state[static_cast<size_t>(next)] == unseen) path.push_back(next);
      }
    }
  }
}

/// Of membership_values: one set per branch of mode member, in order, with NaN between two.
void read_sets(const Attributes& attributes, Forest& forest) {
  std::vector<std::vector<double>> sets(1);
  for (double value : reals_of(attributes, "membership_values")) {
    if (std::isnan(value)) sets.emplace_back();
    else sets.back().push_back(value);
  }
  if (sets.back().empty()) sets.pop_back();  // NaN also after the last
  size_t used = 0;
  for (TreeBranch& branch : forest.branches)
    if (branch.mode == BranchMode::member) branch.members = static_cast<int32_t>(used++);
  if (used > sets.size())
    fail_forest(cat("attribute \"membership_values\" has ", sets.size(), " sets for ", used,
                    " branches of mode BRANCH_MEMBER"));
  for (std::vector<double>& set : sets) std::sort(set.begin(), set.end());
  forest.sets = std::move(sets);
}

BranchMode mode_named(const std::string& name, size_t entry) {
  constexpr std::string_view names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                        "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (name == names[i]) return static_cast<BranchMode>(i);
  fail_forest(cat("entry ", entry, " of attribute \"nodes_modes\" is ", quote(name), ", expected LEAF or a branch"));
}

Aggregate aggregate_named(const std::string& name) {
  constexpr std::string_view names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (name == names[i]) return static_cast<Aggregate>(i);
  fail_forest(cat("attribute \"aggregate_function\" is ", quote(name), ", expected AVERAGE, SUM, MIN or MAX"));
}

}  // namespace

bool Forest::holds(const TreeBranch& branch, double value) const {
  if (branch.missing_is_true && std::isnan(value)) return true;
  switch (branch.mode) {
    case BranchMode::leq: return value <= branch.split;
    case BranchMode::lt: return value < branch.split;
    case BranchMode::gte: return value >= branch.split;
    case BranchMode::gt: return value > branch.split;
    case BranchMode::eq: return value == branch.split;
    case BranchMode::neq: return value != branch.split;
    case BranchMode::member: break;
  }
  const std::vector<double>& set = sets[static_cast<size_t>(branch.members)];
  return !std::isnan(value) && std::binary_search(set.begin(), set.end(), value);
}

Forest read_forest(const Attributes& attributes) {
  const NodeLists lists(attributes);
  Forest forest;
  forest.targets = attributes.integer("n_targets");
  const size_t nodes = attributes.integers("nodes_featureids").size(),
               leaves = attributes.integers("leaf_targetids").size();
  const auto node_count = static_cast<int64_t>(nodes), leaf_count = static_cast<int64_t>(leaves);
  if (nodes == 0 || node_count > max_nodes || leaf_count > max_nodes || forest.targets < 1 ||
      forest.targets > INT32_MAX)
    fail_forest(cat("there are ", nodes, " branches, ", leaves, " leaves and ", forest.targets, " targets"));
  const std::vector<int64_t> targets = lists.ints("leaf_targetids", leaves, 0, forest.targets - 1);
  const std::vector<double> weights = lists.reals("leaf_weights", leaves);
  for (size_t i = 0; i < leaves; ++i) forest.leaves.push_back({{static_cast<int32_t>(targets[i]), weights[i]}});

  const std::vector<int64_t> features = lists.ints("nodes_featureids", nodes, 0, INT32_MAX - 1);
  const std::vector<double> splits = lists.reals("nodes_splits", nodes), modes = lists.reals("nodes_modes", nodes);
  const std::vector<int64_t> missing = lists.flags("nodes_missing_value_tracks_true", nodes, true);
  std::vector<int64_t> next[2], is_leaf[2];
  for (int side : {0, 1}) {
    const std::string stem = side ? "nodes_false" : "nodes_true";
    is_leaf[side] = lists.flags(stem + "leafs", nodes, false);
    next[side] = lists.ints(stem + "nodeids", nodes, 0, std::max(node_count, leaf_count) - 1);
    for (size_t i = 0; i < nodes; ++i)
      if (next[side][i] >= (is_leaf[side][i] ? leaf_count : node_count))
        fail_forest(cat("entry ", i, " of attribute ", quote(stem + "nodeids"), " is ", next[side][i],
                        ", and there are ", is_leaf[side][i] ? leaf_count : node_count,
                        is_leaf[side][i] ? " leaves" : " branches"));
  }
  for (size_t i = 0; i < nodes; ++i) {
    if (!(modes[i] >= 0 && modes[i] <= static_cast<double>(BranchMode::member)))
      fail_forest(cat("entry ", i, " of attribute \"nodes_modes\" is ", modes[i], ", expected 0 to 6"));
    const auto place = [&](int side) {
      return is_leaf[side][i] ? leaf_place(next[side][i]) : static_cast<TreePlace>(next[side][i]);
    };
    forest.branches.push_back({static_cast<BranchMode>(modes[i]), missing[i] != 0, static_cast<int32_t>(features[i]),
                               0, splits[i], place(0), place(1)});
    forest.features = std::max(forest.features, features[i] + 1);
  }
  read_sets(attributes, forest);
  for (int64_t root : lists.ints("tree_roots", attributes.integers("tree_roots").size(), 0, node_count - 1))
    forest.roots.push_back(static_cast<TreePlace>(root));
  const int64_t aggregate = attributes.integer("aggregate_function", 1),
                transform = attributes.integer("post_transform", 0);
  if (aggregate < 0 || aggregate > 3)
    fail_forest(cat("attribute \"aggregate_function\" is ", aggregate, ", expected 0 to 3"));
  if (transform < 0 || transform > 4)
    fail_forest(cat("attribute \"post_transform\" is ", transform, ", expected 0 to 4"));
  forest.aggregate = static_cast<Aggregate>(aggregate);
  forest.transform = static_cast<PostTransform>(transform);
  check_ends(forest);
  return forest;
}

Forest read_listed_forest(const Attributes& attributes, const std::string& stem, int64_t targets) {
  const NodeLists lists(attributes);
  Forest forest;
  forest.targets = targets;
  if (targets < 1 || targets > INT32_MAX) fail_forest(cat("there are ", targets, " targets"));
  const std::vector<int64_t> trees = attributes.integers("nodes_treeids");
  const size_t nodes = trees.size();
  if (nodes == 0 || static_cast<int64_t>(nodes) > max_nodes) fail_forest(cat("there are ", nodes, " nodes"));
  const std::vector<int64_t> ids = lists.flags("nodes_nodeids", nodes, false),
                             features = lists.flags("nodes_featureids", nodes, false),
                             if_true = lists.flags("nodes_truenodeids", nodes, false),
                             if_false = lists.flags("nodes_falsenodeids", nodes, false),
                             missing = lists.flags("nodes_missing_value_tracks_true", nodes, true);
  const std::vector<double> splits = lists.reals("nodes_values", nodes);
  const Attribute* found = attributes.find("nodes_modes");
  const auto* modes = found ? std::get_if<std::vector<std::string>>(found) : nullptr;
  if (!modes || modes->size() != nodes)
    fail_forest(cat("attribute \"nodes_modes\" has ", modes ? modes->size() : 0, " entries, expected ", nodes));

  std::map<std::pair<int64_t, int64_t>, TreePlace> places;  // of tree and node
  int32_t branches = 0;
  for (size_t i = 0; i < nodes; ++i) {
    const bool leaf = (*modes)[i] == "LEAF";
    const TreePlace place = leaf ? leaf_place(std::ssize(forest.leaves)) : branches++;
    if (leaf) forest.leaves.emplace_back();
    if (!places.emplace(std::pair(trees[i], ids[i]), place).second)
      fail_forest(cat("tree ", trees[i], " has two nodes ", ids[i]));
  }
  const auto place_of = [&](int64_t tree, int64_t id, std::string_view name, size_t entry) {
    const auto at = places.find({tree, id});
    if (at == places.end())
      fail_forest(
          cat("entry ", entry, " of attribute ", quote(name), " is ", id, ", and tree ", tree, " has no such node"));
    return at->second;
  };
  std::map<int64_t, bool> rooted;  // trees whose root is known: the first of their nodes
  for (size_t i = 0; i < nodes; ++i) {
    if (rooted.emplace(trees[i], true).second) forest.roots.push_back(places.at({trees[i], ids[i]}));
    if ((*modes)[i] == "LEAF") continue;
    if (features[i] < 0 || features[i] >= INT32_MAX)
      fail_forest(cat("entry ", i, " of attribute \"nodes_featureids\" is ", features[i]));
    forest.branches.push_back({mode_named((*modes)[i], i), missing[i] != 0, static_cast<int32_t>(features[i]), 0,
                               splits[i], place_of(trees[i], if_true[i], "nodes_truenodeids", i),
                               place_of(trees[i], if_false[i], "nodes_falsenodeids", i)});
    forest.features = std::max(forest.features, features[i] + 1);
  }
  const std::vector<int64_t> leaf_trees = attributes.integers(stem + "_treeids");
  const size_t weights = leaf_trees.size();
  const std::vector<int64_t> leaf_ids = lists.flags(stem + "_nodeids", weights, false),
                             leaf_targets = lists.ints(stem + "_ids", weights, 0, targets - 1);
  const std::vector<double> numbers = lists.reals(stem + "_weights", weights);
  for (size_t i = 0; i < weights; ++i) {
    const TreePlace place = place_of(leaf_trees[i], leaf_ids[i], stem + "_nodeids", i);
    if (place < 0)  // weights of branches are never reached
      forest.leaves[static_cast<size_t>(-1 - place)].push_back({static_cast<int32_t>(leaf_targets[i]), numbers[i]});
  }
  forest.aggregate = aggregate_named(attributes.string("aggregate_function", "SUM"));
  forest.transform = post_transform_of(attributes.string("post_transform", "NONE"));
  forest.base = reals_of(attributes, "base_values");
  if (forest.base.empty()) forest.base = reals_of(attributes, "base_values_as_tensor");
  check_ends(forest);
  return forest;
}

}  // namespace plait::reference
