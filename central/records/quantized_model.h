#pragma once

// A model in integers as a file, model.q8, and what central asks of the worker process that makes
// or runs it. The graph itself is bytes here: only workers look into it.
//
// The file: the envelope of proto/crypto/sealed_file.h with magic "RNLQINT8", then a serialized
// runnel.proto.QuantizedModel. kernels/inference/README.md describes it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/settings/run_settings.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

inline constexpr uint32_t kQuantizedVersion = 1;
// protobuf's own limit: checked before anything is allocated.
inline constexpr int64_t kMaxQuantizedBytes = (int64_t{1} << 31) - 1;

// The flags of `quantize`.
struct QuantizeMethod {
  std::string calibration = "kl";
  std::string scheme = "symmetric";
  std::string granularity = "channel";
  bool fold_batch_norm = true;
  std::string winograd = "off";
  int64_t samples = 500;  // of calibration

  friend bool operator==(const QuantizeMethod&, const QuantizeMethod&) = default;
};

struct QuantizedModel {
  std::string model_sha256;    // ModelSha256
  std::string weights_sha256;  // of the FP32 weights
  RunSettings settings;        // of the run that trained it
  int64_t step = 0;
  QuantizeMethod method;
  std::string graph;  // a serialized runnel.proto.QuantizedGraph

  friend bool operator==(const QuantizedModel&, const QuantizedModel&) = default;
};

// Errors as WriteFileAtomically; InvalidArgument: over kMaxQuantizedBytes.
absl::Status WriteQuantizedModel(const QuantizedModel& model, const std::string& path);
// Checks all but the graph. One-line errors that name the path: NotFound, PermissionDenied;
// InvalidArgument for something else; DataLoss for one that is truncated or damaged; Unimplemented
// for another version.
absl::StatusOr<QuantizedModel> ReadQuantizedModel(const std::string& path);

// What a worker process is asked for, as bytes (proto/inference.proto). samples: FP32, NCHW, as
// bytes; batch: of them at a time. InvalidArgument: more than a message can hold.
absl::StatusOr<std::string> QuantizeJob(std::string samples, int64_t batch, const ModelSpec& model,
                                        ModelState state, const QuantizeMethod& method);
absl::StatusOr<std::string> EvaluateJob(std::string samples, int64_t batch,
                                        const std::vector<int32_t>& labels,
                                        const std::string& graph);

// Its answer.
struct InferenceReply {
  std::string graph;         // of QuantizeJob
  int64_t weight_bytes = 0;  // likewise: INT8 weights with biases and factors
  double accuracy = 0;       // of EvaluateJob
  double loss = 0;
  std::string kernels;  // what computed
};
// The error that the worker answered with, or Internal for bytes that are no answer.
absl::StatusOr<InferenceReply> ReadInferenceReply(absl::string_view bytes);

}  // namespace runnel
