#pragma once

// What the conformance suite asks of each family beyond the contract: one row a family.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "compress/codec.h"

namespace runnel::codec_conformance {

using Payload = std::vector<std::byte>;

// A tensor and what the first micro-batch of a fresh encoder made of it.
struct Crossing {
  CodecId codec;
  const std::vector<float>& x;
  Shape shape;
  const Payload& payload;

  int bits() const { return static_cast<int>(*codec.parameter); }
};

struct FamilyCase {
  absl::string_view family;
  // The largest error that element e may have; infinite where another test looks.
  double (*bound)(const Crossing& crossing, size_t e);
  // FP32 fields at the beginning of a payload that are refused if they are NaN or infinite.
  int (*fields)(int bits) = [](int) { return 0; };
  // Payloads depend on the encoder's key.
  bool draws = false;
  // Each element comes as it is, within the bound, or as zero.
  bool sparse = false;
  // So much of a normal tensor's square may be lost with few bits.
  double loss = 0.25;
  // How far a tensor's loss may be from the row's, as a share of it: more where a few of the largest
  // values decide.
  double spread = 0.1;
};

// The row of a codec by name; there must be one.
const FamilyCase& CaseOf(const std::string& name);

// A little-endian FP32 of a payload.
float Field(const Payload& payload, int index);
// Where the first tile of a tile codec's payload begins.
size_t TilesAt(const std::string& family);

}  // namespace runnel::codec_conformance
