#pragma once

// A model in integers as a file, model.q8, and what central asks of the worker process that makes
// it or times its layers. The graph itself is bytes here: only workers look into it.
//
// The file: the envelope of proto/crypto/sealed_file.h with magic "RNLQINT8", then a serialized
// runnel.proto.QuantizedModel. deploy/INT8.md describes it.

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
  int64_t samples = 500;  // samples of calibration
  std::string first_layer = "int8";
  std::string last_layer = "int8";

  friend bool operator==(const QuantizeMethod&, const QuantizeMethod&) = default;
};

// Error of a node's values against the FP32 model's, over calibration samples.
struct LayerError {
  double snr_db = 0;  // infinite where they are equal
  double cosine = 0;

  friend bool operator==(const LayerError&, const LayerError&) = default;
};

struct QuantizedModel {
  std::string model_sha256;    // ModelSha256
  std::string weights_sha256;  // digest of the FP32 weights
  RunSettings settings;        // settings of the run that trained it
  int64_t step = 0;
  QuantizeMethod method;
  std::string graph;               // a serialized runnel.proto.QuantizedGraph
  std::vector<LayerError> errors;  // by node; or none
  // Of files of until 2026-11-27: without layers, and empty.
  ModelSpec model;
  std::string data_text;  // what it was trained on (central/data/data_description.h)

  friend bool operator==(const QuantizedModel&, const QuantizedModel&) = default;
};

// Errors as WriteFileAtomically; InvalidArgument: over kMaxQuantizedBytes.
absl::Status WriteQuantizedModel(const QuantizedModel& model, const std::string& path);
// Checks all but the graph. One-line errors that name the path: NotFound, PermissionDenied;
// InvalidArgument for something else; DataLoss for one that is truncated or damaged; Unimplemented
// for another version.
absl::StatusOr<QuantizedModel> ReadQuantizedModel(const std::string& path);

// What a worker process is asked for, as bytes (proto/inference.proto). samples: FP32, NCHW, as
// bytes; batch: of them at a time; report: also LayerFigures; graph: of a model; backend: by name.
// InvalidArgument: more than a message can hold.
absl::StatusOr<std::string> QuantizeJob(std::string samples, int64_t batch, const ModelSpec& model,
                                        ModelState state, const QuantizeMethod& method,
                                        bool report);
absl::StatusOr<std::string> ProfileJob(const std::string& graph, const std::string& backend);
// accumulates: a step has several micro-batches.
absl::StatusOr<std::string> FitJob(const ModelSpec& model, const std::string& recipe,
                                   const std::string& optimizer, bool accumulates);

// The first layers of a model on samples, whose model and weights are a check-point's.
struct FrontJobOptions {
  int layers = 0;        // all of them: the answer is how many samples are right
  bool outputs = false;  // of all layers: the answer is what the model gives
  std::string recipe;  // kInt8Inference: the model is QuantizedStages', and all layers give outputs
  std::string optimizer;
  std::string backend;
  int32_t label = 0;  // of all samples
  int64_t batch = 64;
};
absl::StatusOr<std::string> FrontJob(std::string samples, const ModelSpec& model,
                                     const ModelState& state, const FrontJobOptions& options);

// A node in a layer report, for one sample (kernels/models/node_profile.h).
struct LayerFigures {
  std::string name, shape, kernel;
  int64_t macs = 0;
  int64_t bytes = 0;
  double seconds = 0;
  double fp32_seconds = 0;  // of convolutions and linear layers on the processor; 0: not timed
};

// Whether a backend can train a model.
struct BackendFit {
  std::string backend;
  std::string why_not;  // one line; empty: it can
};

// Its answer.
struct InferenceReply {
  // Of QuantizeJob.
  std::string graph;
  int64_t weight_bytes = 0;        // INT8 weights with biases and factors
  std::vector<LayerError> errors;  // by node
  // Convolutions that Winograd's algorithm can compute, and those that it does.
  int64_t winograd_fits = 0;
  int64_t winograd_taken = 0;
  // Of ProfileJob, and of QuantizeJob with report.
  std::string kernels;               // instruction set, or device
  std::vector<LayerFigures> layers;  // by node
  double peak = 0;                   // operations a second of one thread
  int64_t threads = 0;
  // Of FrontJob.
  std::string outputs;           // FP32, sample by sample; empty where all layers ran
  int64_t samples = 0;           // that went through
  int64_t correct = 0;           // of them, where all layers ran
  std::vector<BackendFit> fits;  // of FitJob, best first
};
// The error that the worker answered with, or Internal for bytes that are no answer.
absl::StatusOr<InferenceReply> ReadInferenceReply(absl::string_view bytes);

}  // namespace runnel
