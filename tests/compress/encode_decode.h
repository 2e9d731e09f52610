#pragma once

// A vector of floats through a codec.

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "compress/codec.h"
#include "gtest/gtest.h"
#include "proto/base/tensor/tensor_view.h"

namespace runnel {

inline std::vector<std::byte> Encoded(Encoder& encoder, const Codec& codec,
                                      const std::vector<float>& x, bool restart = false) {
  const Shape shape = {static_cast<int64_t>(x.size())};
  std::vector<std::byte> payload(static_cast<size_t>(codec.EncodedBytes(shape).value()));
  const absl::Status status =
      encoder.Encode(ViewOf(x, shape), Sequence(0), restart, absl::MakeSpan(payload));
  EXPECT_TRUE(status.ok()) << status;
  return payload;
}

inline absl::Status Decode(const Codec& codec, const std::vector<std::byte>& payload,
                           std::vector<float>& out) {
  const Shape shape = {static_cast<int64_t>(out.size())};
  return codec.Decode(payload, MutableViewOf(absl::MakeSpan(out), shape));
}

}  // namespace runnel
