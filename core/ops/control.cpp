// If, Loop, Scan. Their bodies are inferred in core/graph/infer_bodies.cpp.
#include "core/ops/families.h"

namespace plait {

void register_control(OpSet& ops) {
  ops.add({.name = "If", .inputs = "cond captures?...", .outputs = "outputs...",
           .attributes = {{"then_branch", "graph", "required"}, {"else_branch", "graph", "required"}},
           .doc = "one of two bodies", .since = 24});
  // Captures are appended to the inputs, so the number of carried values is an attribute.
  ops.add({.name = "Loop",
           .inputs = "trip_count? cond? carried_and_captures?...",
           .outputs = "carried_and_scanned?...",
           .attributes = {{"body", "graph", "required"},
                          {"carried", "int", ""},
                          {"empty_sizes", "ints", ""},
                          {"reversed", "int", ""}},
           .doc = "a body repeated; `carried` counts the carried values (absent: all inputs after the second), "
                  "`empty_sizes` "
                  "has the declared rank of each stacked value (-1: none), and its sizes (0: open); `reversed`: "
                  "iterations are "
                  "numbered from the trip count down to 0",
           .since = 24});
  ops.add(
      {.name = "Scan",
       .inputs = "states_scans_and_captures...",
       .outputs = "states_and_scans...",
       .attributes = {{"body", "graph", "required"},
                      {"num_scan_inputs", "int", "required"},
                      {"scan_input_axes", "ints", ""},
                      {"scan_input_directions", "ints", ""},
                      {"scan_output_axes", "ints", ""},
                      {"scan_output_directions", "ints", ""},
                      {"carried", "int", ""}},
       .doc = "a body over slices, read as a Loop; `carried` counts the states (absent: all inputs but the scanned)",
       .since = 24});
}

}  // namespace plait
