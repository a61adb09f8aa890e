#pragma once
// What this process holds of malloc's memory, and the most since a moment.
#include <cstdint>

namespace plait::text_test {

/// False in builds with sanitizers, which have a malloc of their own: then the others return 0.
bool counts_allocations();
/// Begins anew: what is held now counts as nothing.
void reset_allocation_peak();
/// The most bytes held at once since then, of all threads.
int64_t allocation_peak();

}  // namespace plait::text_test
