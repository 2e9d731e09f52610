#include "central/records/weights_digest.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

void AddTensors(const ModelState& state, bool buffers, Sha256Hasher& sha) {
  for (const LayerState& layer : state.layers) {
    for (const TensorData& tensor : layer.tensors) {
      // How training scales sums is no part of what it made.
      if (absl::EndsWith(tensor.name, ".kept_scales")) continue;
      if (IsBufferName(tensor.name) != buffers) continue;
      sha.Add(absl::StrCat(layer.layer, ".", tensor.name, " ", Name(tensor.dtype), " ",
                           tensor.shape.ToString(), "\n"));
      sha.Add(tensor.bytes);
    }
  }
}

}  // namespace

bool IsBufferName(absl::string_view tensor_name) {
  return absl::EndsWith(tensor_name, ".running_mean") ||
         absl::EndsWith(tensor_name, ".running_var") || absl::EndsWith(tensor_name, ".exponent");
}

std::string WeightsSha256(const ModelState& state) {
  Sha256Hasher sha;
  AddTensors(state, /*buffers=*/false, sha);
  AddTensors(state, /*buffers=*/true, sha);
  return absl::BytesToHexString(sha.Digest());
}

}  // namespace runnel
