#pragma once
// What `shard` decided for a decoder, for people: which weights are cut how, what the ranks say to each other for a token, and
// why.
#include <string>
#include <vector>

#include "core/passes/base/pass.h"
#include "core/passes/shard/price.h"

namespace plait {

struct PlanReport {
  struct Weight {
    std::string name;                  ///< in the file; of the value where no tensor of the file stands behind it
    std::string node;                  ///< that reads it, by its name; the op where it has none
    std::string type;                  ///< whole: "f32[512, 64]"
    std::string cut;                   ///< "[tensor, -]"
    std::vector<int64_t> dims, parts;  ///< sizes, and into how many parts each is cut
    int64_t bytes = 0, rank_bytes = 0;
    bool copy = false;    ///< held once more, in another way
    bool shared = false;  ///< the same memory as an earlier one's
    std::string whole;    ///< why it is not cut by all of the axis tensor; "": it is, or it is a bias or the like
  };
  struct Moved {
    std::string kind;      ///< "all_reduce"
    std::string what;      ///< the value, or the node that makes it
    std::string for_node;  ///< that needs it
    std::string held;      ///< by each rank before it: "f32[1, t, 64]", t tokens
    std::string axes;
    double bytes = 0;  ///< that each rank sends for one token
    int after = 0;     ///< so many of the part's weights are read before
  };
  /// A node with several ways to be placed: which was taken, and why.
  struct Choice {
    struct Way {
      std::string cut;  ///< "f: tensor"; "-" for none
      double bytes = 0;
      int owed = 0;
      bool chosen = false;
    };
    std::string node;
    std::vector<Way> ways;
    std::string why;
  };
  /// What stands before the layers, a layer, or what stands behind them.
  struct Part {
    std::string name;  ///< "before", "layer 3", "after"
    int kind = 0;      ///< parts of one kind cut weights of the same types alike, and say the same to each other
    std::vector<Weight> weights;
    std::vector<Moved> moved;
    std::vector<Choice> choices;
  };
  std::string mesh;
  int64_t ranks = 1;
  std::vector<std::string> seeds;
  std::vector<Part> parts;
  std::vector<std::string> unruled;  ///< nodes that get whole operands since their op has no rule
  HeldBytes held;
  PlanPrice price;                               ///< by the default prices
  int64_t typical_tokens = 0, typical_rows = 0;  ///< of the step at which the ways were priced
};

/// `raised` is a decoder's graph as pass `raise` leaves it. Throws what `seeds_of` throws.
PlanReport report_plan(Graph raised, const CompileOptions& options);

}  // namespace plait
