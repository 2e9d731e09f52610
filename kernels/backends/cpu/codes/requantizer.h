#pragma once

// The end of one product: sums become codes while they are in the nearest cache.

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/backends/cpu/codes/product_spec.h"
#include "kernels/backends/cpu/int8/gather_conv.h"
#include "kernels/backends/cpu/int8/sums_sink.h"

namespace runnel::cpu {

// Prepared once for a product; immutable, so any thread.
class Requantizer {
 public:
  // Nothing for what the plain loop does: a product that gives sums, one whose sums could leave
  // int32 (they saturate, code_rule.h), and groups with weight zeros.
  static std::optional<Requantizer> Of(const ProductSpec& spec, const CodeLoops& loops);

  void Run(const SumRows& rows) const { loops_->requantize(Columns(), rows); }
  bool needs_row_sums() const { return !weight_zeros_.empty(); }

  CodeColumns Columns() const;

  // Whether a float has each factor, and no sum that it could round wrongly: tiles make codes then.
  bool codes_tiles() const { return codes_tiles_; }
  // Without a result. With codes_tiles.
  GatherCoding TileCoding() const;

 private:
  Requantizer(const CodeRule& rule, const CodeLoops& loops) : rule_(rule), loops_(&loops) {}

  CodeRule rule_;
  const CodeLoops* loops_;
  bool codes_tiles_ = false;
  std::vector<int32_t> offsets_;  // with what a panel has more
  std::vector<int32_t> multipliers_, shifts_, limits_, weight_zeros_;
  std::vector<float> scales_;  // likewise; empty where a product with one could reach 2^30
};

// Writes the codes of a product's sums; one product.
class CodeSink : public SumsSink {
 public:
  // codes: of all samples. row_sums: by position, where the requantizer needs them.
  CodeSink(const Requantizer& requantizer, int64_t out_c, const int32_t* row_sums, int8_t* codes)
      : requantizer_(requantizer), out_c_(out_c), row_sums_(row_sums), codes_(codes) {}
  void Take(const SumsOfTile& tile) override;

 private:
  const Requantizer& requantizer_;
  int64_t out_c_;
  const int32_t* row_sums_;
  int8_t* codes_;
};

}  // namespace runnel::cpu
