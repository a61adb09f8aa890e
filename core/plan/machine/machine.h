#pragma once
// A machine as the planner sees it: how fast a device computes, and how fast devices exchange.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/plan/machine/speed.h"

namespace plait {

/// One device: what a rank computes on.
struct DeviceSpeed {
  double memory_bytes = 0;
  Speed bandwidth;      ///< bytes a second that kernels reach, by the bytes that one reads and writes
  double launch_s = 0;  ///< from one kernel's end to the next one's begin
  /// Floating point operations a second of products, by the operands' type and the product's least dim.
  std::map<DType, Speed> peak;
  /// Of a peak that is one number, a product whose least dim is n reaches peak * most * (1 - exp(-n / knee)).
  double most = 1, knee = 0;
  /// Multiprocessors, each of which computes 128 by 256 results of a product at a time: the last round of more tiles than that is as long
  /// as the others (NVIDIA, "Matrix Multiplication Background User's Guide", wave quantization). 0: products are not computed so.
  double processors = 0;
  /// How often attention reads or writes its scores [heads, queries, keys] in memory in a forward pass, in elements of the
  /// operands' type; 0: it keeps them on the chip.
  double score_passes = 0;
  /// Products add their results to sums of gradients; otherwise a kernel of its own reads both.
  bool fused_sums = false;

  /// Throws Error(invalid_argument) for a type whose speed the machine does not specify.
  double flops_per_second(DType dtype, double least_dim) const;
  /// The share of the processors' rounds that so many tiles fill; 1 for fewer than there are processors, which are cut along their depth.
  double filled(double tiles) const;
  /// Seconds that a kernel reads and writes so many bytes.
  double moving_s(double bytes) const { return bytes / bandwidth.at(bytes); }
};

/// Links among `ranks` consecutive ranks: those of a chip, a node, a rack. Levels grow outwards.
struct LinkLevel {
  std::string name;
  int64_t ranks = 0;     ///< that one such group has; 0: any number (the outermost)
  double bandwidth = 0;  ///< bytes a second and direction
  double latency_s = 0;
  /// Whether all ranks of the level below share the bandwidth (a node's network card); otherwise it is each device's own.
  bool shared = false;
};

struct Machine {
  std::string name, about;  ///< about: sources
  DeviceSpeed device;
  std::vector<LinkLevel> levels;

  /// Throws Error(invalid_argument) if it has fewer.
  void check_ranks(int64_t ranks) const;
  /// The innermost level whose groups contain both, with ranks numbered from 0. Throws Error(invalid_argument) if there is none.
  const LinkLevel& level_between(int64_t a, int64_t b) const;
  /// Bytes a second of a device through a level, if `users` ranks of one group of the level below use it at once.
  double bandwidth(const LinkLevel& level, int64_t users) const;
};

/// Reads the form of core/plan/machine/machines, in JSON. Throws Error(invalid_argument) naming the field: one that is missing or
/// unknown, a number that has another unit, levels that do not grow.
Machine parse_machine(std::string_view json);
/// The same of one that comes along ("a100"), otherwise of the file at this path. Throws also Error(not_found), with the names.
Machine open_machine(const std::string& name_or_path);
/// The inverse of parse_machine, up to four digits.
std::string machine_json(const Machine& machine);

}  // namespace plait
