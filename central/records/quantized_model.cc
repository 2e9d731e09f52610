#include "central/records/quantized_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "central/records/checkpoint.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/recipe_family.h"
#include "proto/crypto/sealed_file.h"
#include "proto/inference.pb.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/control/model_convert.h"

namespace runnel {
namespace {

constexpr SealedFormat kFormat = {"RNLQINT8", kQuantizedVersion, "quantised model"};

proto::QuantizeMethod ToMessage(const QuantizeMethod& method) {
  proto::QuantizeMethod message;
  message.set_calibration(method.calibration);
  message.set_scheme(method.scheme);
  message.set_granularity(method.granularity);
  message.set_fold_batch_norm(method.fold_batch_norm);
  message.set_winograd(method.winograd);
  message.set_samples(method.samples);
  message.set_first_layer(method.first_layer);
  message.set_last_layer(method.last_layer);
  return message;
}

QuantizeMethod FromMessage(const proto::QuantizeMethod& message) {
  QuantizeMethod method;
  method.calibration = message.calibration();
  method.scheme = message.scheme();
  method.granularity = message.granularity();
  method.fold_batch_norm = message.fold_batch_norm();
  method.winograd = message.winograd();
  method.samples = message.samples();
  // Files of earlier releases do not name them.
  if (!message.first_layer().empty()) method.first_layer = message.first_layer();
  if (!message.last_layer().empty()) method.last_layer = message.last_layer();
  return method;
}

std::vector<LayerError> ErrorsOf(
    const google::protobuf::RepeatedPtrField<proto::LayerError>& messages) {
  std::vector<LayerError> errors;
  for (const proto::LayerError& error : messages) {
    errors.push_back({error.snr_db(), error.cosine()});
  }
  return errors;
}

absl::StatusOr<QuantizedModel> Decode(absl::string_view content) {
  RUNNEL_ASSIGN_OR_RETURN(const absl::string_view payload, OpenSealed(kFormat, content));
  proto::QuantizedModel message;
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return absl::DataLossError("is damaged: its contents cannot be parsed");
  }
  QuantizedModel model;
  model.model_sha256 = message.model_sha256();
  model.weights_sha256 = message.weights_sha256();
  absl::StatusOr<RunSettings> settings = SettingsFromJson(message.settings_json());
  if (!settings.ok()) {
    return absl::DataLossError(absl::StrCat("does not fit itself: ", settings.status().message()));
  }
  model.settings = *std::move(settings);
  model.step = message.step();
  model.method = FromMessage(message.method());
  model.graph = std::move(*message.mutable_graph());
  model.errors = ErrorsOf(message.errors());
  model.data_text = std::move(*message.mutable_data_text());
  if (!message.has_model()) return model;
  absl::StatusOr<ModelSpec> spec = FromProto(message.model());
  if (!spec.ok()) {
    return absl::DataLossError(absl::StrCat("does not fit itself: ", spec.status().message()));
  }
  model.model = *std::move(spec);
  if (ModelSha256(model.model) != model.model_sha256)
    return absl::DataLossError("does not fit itself: its model is another one");
  return model;
}

absl::StatusOr<std::string> Serialized(const proto::InferenceJob& job) {
  if (job.ByteSizeLong() > static_cast<size_t>(kMaxQuantizedBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("weights and samples take ", job.ByteSizeLong(),
                                                   " bytes together, a worker process is given ",
                                                   kMaxQuantizedBytes, ": take fewer samples"));
  }
  return job.SerializeAsString();
}

}  // namespace

absl::Status WriteQuantizedModel(const QuantizedModel& model, const std::string& path) {
  proto::QuantizedModel message;
  message.set_model_sha256(model.model_sha256);
  message.set_weights_sha256(model.weights_sha256);
  message.set_settings_json(SettingsToJson(model.settings));
  message.set_step(model.step);
  *message.mutable_method() = ToMessage(model.method);
  message.set_graph(model.graph);
  if (!model.model.layers.empty()) *message.mutable_model() = ToProto(model.model);
  message.set_data_text(model.data_text);
  for (const LayerError& error : model.errors) {
    proto::LayerError& added = *message.add_errors();
    added.set_snr_db(error.snr_db);
    added.set_cosine(error.cosine);
  }
  if (message.ByteSizeLong() + kSealBytes > static_cast<size_t>(kMaxQuantizedBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": over ", kMaxQuantizedBytes, " bytes"));
  }
  const std::string payload = message.SerializeAsString();
  return WriteFileAtomically(path, {Seal(kFormat, payload), payload});
}

absl::StatusOr<QuantizedModel> ReadQuantizedModel(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(path, kMaxQuantizedBytes));
  absl::StatusOr<QuantizedModel> model = Decode(content);
  if (model.ok()) return model;
  return absl::Status(model.status().code(),
                      absl::StrCat("quantised model ", path, " ", model.status().message()));
}

absl::StatusOr<std::string> QuantizeJob(std::string samples, int64_t batch, const ModelSpec& model,
                                        ModelState state, const QuantizeMethod& method,
                                        bool report) {
  proto::InferenceJob job;
  proto::QuantizeModel& asked = *job.mutable_quantize();
  *asked.mutable_model() = ToProto(model);
  *asked.mutable_state() = ToProto(std::move(state));
  *asked.mutable_method() = ToMessage(method);
  asked.set_samples(std::move(samples));
  asked.set_batch(batch);
  asked.set_report(report);
  return Serialized(job);
}

absl::StatusOr<std::string> ProfileJob(const std::string& graph, const std::string& backend) {
  proto::InferenceJob job;
  job.mutable_profile()->set_graph(graph);
  job.mutable_profile()->set_backend(backend);
  return Serialized(job);
}

absl::StatusOr<std::string> FitJob(const ModelSpec& model, const std::string& recipe,
                                   const std::string& optimizer, bool accumulates) {
  proto::InferenceJob job;
  proto::FitBackends& asked = *job.mutable_fit();
  *asked.mutable_model() = ToProto(model);
  asked.set_recipe(recipe);
  asked.set_optimizer(optimizer);
  asked.set_accumulates(accumulates);
  return Serialized(job);
}

namespace {

// The loss is part of the last layer, whose output stays in the worker: one more stands behind it,
// which no job computes.
ModelSpec WithoutLoss(ModelSpec model) {
  LayerSpec end;
  end.name = "behind the model";
  end.ops.push_back({.kind = OpKind::kRelu, .inputs = {0}});
  model.layers.push_back(std::move(end));
  return model;
}

// Layers behind the model's first ones learn from the outputs of these, so they are computed as
// training with a frozen front computes them. A recipe with state of its own for each operator has
// none for frozen ones, which the checkpoint of the unfrozen model does not fit; its outputs are the
// same either way.
absl::Status FreezeFront(const FrontJobOptions& options, ModelSpec& model, ModelState& front) {
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(options.recipe));
  if (!recipe.family->format.operator_state.empty()) return absl::OkStatus();
  for (LayerState& layer : front.layers) {
    model.layers[static_cast<size_t>(layer.layer)].frozen = true;
    layer.slots.clear();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FrontJob(std::string samples, const ModelSpec& model,
                                     const ModelState& state, const FrontJobOptions& options) {
  proto::InferenceJob job;
  proto::RunFront& asked = *job.mutable_front();
  ModelSpec asked_model = options.outputs ? WithoutLoss(model) : model;
  ModelState front = Slice(state, 0, options.layers - 1);
  if (options.layers < model.layer_count())
    RUNNEL_RETURN_IF_ERROR(FreezeFront(options, asked_model, front));
  *asked.mutable_model() = ToProto(asked_model);
  *asked.mutable_state() = ToProto(std::move(front));
  asked.set_layers(options.layers);
  asked.set_recipe(options.recipe);
  asked.set_optimizer(options.optimizer);
  asked.set_backend(options.backend);
  asked.set_samples(std::move(samples));
  asked.set_label(options.label);
  asked.set_batch(options.batch);
  return Serialized(job);
}

absl::StatusOr<InferenceReply> ReadInferenceReply(absl::string_view bytes) {
  proto::InferenceReply message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InternalError("the worker process gave an answer that cannot be parsed");
  }
  if (message.code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(message.code()), message.message());
  }
  InferenceReply reply;
  reply.graph = std::move(*message.mutable_graph());
  reply.weight_bytes = message.weight_bytes();
  reply.kernels = message.kernels();
  reply.winograd_fits = message.winograd_fits();
  reply.winograd_taken = message.winograd_taken();
  reply.errors = ErrorsOf(message.errors());
  for (const proto::LayerFigures& layer : message.layers()) {
    reply.layers.push_back({layer.name(), layer.shape(), layer.kernel(), layer.macs(),
                            layer.bytes(), layer.seconds(), layer.fp32_seconds()});
  }
  reply.peak = message.peak();
  reply.threads = message.threads();
  reply.outputs = std::move(*message.mutable_outputs());
  reply.samples = message.samples();
  reply.correct = message.correct();
  for (const proto::BackendFit& fit : message.fits())
    reply.fits.push_back({fit.backend(), fit.why_not()});
  return reply;
}

}  // namespace runnel
