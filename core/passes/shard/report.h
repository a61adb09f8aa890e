#pragma once
// A readable report of `shard`'s plan for a decoder: shardings of weights, collectives per token, and reasons.
#include <string>
#include <vector>

#include "core/passes/base/pass.h"
#include "core/passes/shard/price.h"

namespace plait {

struct PlanReport {
  struct Weight {
    std::string name;                  ///< in the file; of the value if no tensor of the file is its source
    std::string node;                  ///< name of the node that reads it, or its op
    std::string type;                  ///< unsharded: "f32[512, 64]"
    std::string cut;                   ///< "[tensor, -]"
    std::vector<int64_t> dims, parts;  ///< sizes, and number of shards of each
    int64_t bytes = 0, rank_bytes = 0;
    bool copy = false;    ///< a further copy with another sharding
    bool shared = false;  ///< the same memory as an earlier weight's
    std::string whole;    ///< why it is not sharded by the whole axis tensor; "": it is, or it is a bias or the like
  };
  struct Moved {
    std::string kind;      ///< "all_reduce"
    std::string what;      ///< the value, or the node that makes it
    std::string for_node;  ///< the node that needs it
    std::string held;      ///< by each rank before the collective: "f32[1, t, 64]", t tokens
    std::string axes;
    double bytes = 0;  ///< sent by each rank per token
    int after = 0;     ///< number of the part's weights that are read before
  };
  /// A node with several placements: the one chosen, and why.
  struct Choice {
    struct Way {
      std::string cut;  ///< "f: tensor"; "-" if none
      double bytes = 0;
      int owed = 0;
      bool chosen = false;
    };
    std::string node;
    std::vector<Way> ways;
    std::string why;
  };
  /// The nodes before the layers, of one layer, or after the layers.
  struct Part {
    std::string name;  ///< "before", "layer 3", "after"
    int kind = 0;      ///< equal for parts with the same types, shardings and collectives
    std::vector<Weight> weights;
    std::vector<Moved> moved;
    std::vector<Choice> choices;
  };
  std::string mesh;
  int64_t ranks = 1;
  std::vector<std::string> seeds;
  std::vector<Part> parts;
  std::vector<std::string> unruled;  ///< nodes with replicated operands since their op has no rule
  HeldBytes held;
  PlanPrice price;                               ///< at default prices
  int64_t typical_tokens = 0, typical_rows = 0;  ///< of the step that is priced
};

/// `raised` is a decoder's graph after pass `raise`. Throws the errors of `seeds_of`.
PlanReport report_plan(Graph raised, const CompileOptions& options);

}  // namespace plait
