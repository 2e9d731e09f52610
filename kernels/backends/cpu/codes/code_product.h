#pragma once

// A kInt8ProductToCodes made ready: weights are packed for the tiles of an instruction set, and the
// fastest way is chosen by which sums become codes. All ways give the same bytes.

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/codes/depthwise_codes.h"
#include "kernels/backends/cpu/codes/packed_product.h"
#include "kernels/backends/cpu/codes/product_spec.h"
#include "kernels/backends/cpu/codes/requantizer.h"

namespace runnel::cpu {

class CodeProduct {
 public:
  CodeProduct(const Machine& machine, const ProductSpec& spec);
  CodeProduct(const CodeProduct&) = delete;
  CodeProduct& operator=(const CodeProduct&) = delete;

  // Says which one runs after this one: its weights are fetched on the way. It outlives this one.
  void SetNext(const CodeProduct& next);
  // What it keeps of the weights.
  int64_t bytes() const;
  // x, other: codes, NHWC. y: int8 codes, or int32 sums where the product gives those. y may be
  // `other`. Temporaries come from the machine's workspace.
  void Run(const Machine& machine, int64_t batch, const int8_t* x, const int8_t* other,
           std::byte* y) const;

 private:
  // One call of Run.
  struct Pass {
    const Machine& machine;
    int64_t batch = 0;
    const int8_t* x = nullptr;
    int8_t* codes = nullptr;
    int32_t* sums = nullptr;  // where sums are stored
    const int32_t* row_sums = nullptr;
  };

  // Of Winograd: its image, and the first of its 2 x 2 outputs.
  struct Tile {
    int64_t image = 0, h = 0, w = 0;
  };

  void PackDirect(const Machine& machine, const ProductSpec& spec);
  void ChooseShape(bool merges_taps);
  void PackWinograd(const Int8Kernels& kernels, absl::Span<const int8_t> weights);
  void FuseAddition();
  const int8_t* Padded(const Pass& pass) const;
  void Direct(Pass& pass, const int8_t* other) const;
  Tile TileAt(int64_t tile) const;
  void TransformTile(const Pass& pass, const Tile& tile, int8_t* v, int64_t v_step) const;
  void FinishTile(const Pass& pass, const Tile& tile, const int32_t* m, int64_t m_step,
                  int32_t* sums) const;
  void Winograd(Pass& pass) const;
  void Finish(const Pass& pass) const;
  bool adds_in_tiles() const { return coding_.has_value() && coding_->tile.adds; }

  const ConvShape shape_;  // of one sample
  const CodeRule rule_;
  const std::vector<CodeChannel> channels_;
  const bool gives_sums_;
  std::optional<CodeRule> addition_;
  std::optional<Requantizer> requantizer_;
  ConvShape padded_;  // of `direct_`: without padding where the input is padded in memory
  bool pads_ = false;
  std::optional<PackedProduct> direct_;    // sums of x w
  std::optional<PackedProduct> row_sums_;  // sums of x, by group
  std::vector<PackedProduct> points_;      // Winograd: by point
  std::vector<int8_t> outside_;            // Winograd: a pixel of zeros
  std::optional<DepthwiseCodes> depthwise_;
  std::optional<GatherCoding> coding_;  // without `codes` and `other`
};

// What the loops add by this rule; nothing where its sums do not fit int32.
std::optional<CodeAddition> AdditionOf(const CodeRule& rule);
// y[i] = a[i] and b[i] added by the rule; y may be a or b.
void AddCodes(const Machine& machine, const CodeRule& rule, const int8_t* a, const int8_t* b,
              int64_t count, int8_t* y);
// A sum to its code: kRequantizeCodes.
int8_t CodeOf(const CodeRule& rule, const CodeChannel& channel, int32_t sum);

}  // namespace runnel::cpu
