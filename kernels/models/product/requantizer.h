#pragma once

// The end of one convolution: sums become codes while they are in the nearest cache.

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/backends/cpu/int8/gather_conv.h"
#include "kernels/backends/cpu/int8/sums_sink.h"
#include "kernels/models/graph/int8_graph.h"
#include "kernels/models/loops/code_loops.h"

namespace runnel::inference {

// What does not depend on the samples, by output channel: bias - z_x sum(w) + K z_x z_w.
std::vector<int64_t> SumOffsets(const Int8Node& n, const Coding& in);

// Prepared once for a node; immutable, so any thread.
class Requantizer {
 public:
  // Nothing for what the plain loop does: a node that gives logits, one whose sums could leave
  // int32 (they saturate, int8_graph.h), and groups with weight zeros. n: borrowed.
  static std::optional<Requantizer> Of(const Int8Node& n, const Coding& in, const CodeLoops& loops);

  void Run(const SumRows& rows) const { loops_->requantize(Columns(), rows); }
  bool needs_row_sums() const { return !node_->weight_zeros.empty(); }

  CodeColumns Columns() const;

  // Whether a float has each factor, and no sum that it could round wrongly: tiles make codes then.
  bool codes_tiles() const { return codes_tiles_; }
  // Without a result. With codes_tiles.
  cpu::GatherCoding TileCoding() const;

 private:
  Requantizer(const Int8Node& n, const CodeLoops& loops) : node_(&n), loops_(&loops) {}

  const Int8Node* node_;
  const CodeLoops* loops_;
  bool codes_tiles_ = false;
  std::vector<int32_t> offsets_;  // with what a panel has more
  std::vector<int32_t> multipliers_, shifts_, limits_;
  std::vector<float> scales_;  // likewise; empty where a product with one could reach 2^30
};

// Writes the codes of a product's sums; one product.
class CodeSink : public cpu::SumsSink {
 public:
  // codes: of all samples. row_sums: by position, where the requantizer needs them.
  CodeSink(const Requantizer& requantizer, int64_t out_c, const int32_t* row_sums, int8_t* codes)
      : requantizer_(requantizer), out_c_(out_c), row_sums_(row_sums), codes_(codes) {}
  void Take(const cpu::SumsOfTile& tile) override;

 private:
  const Requantizer& requantizer_;
  int64_t out_c_;
  const int32_t* row_sums_;
  int8_t* codes_;
};

}  // namespace runnel::inference
