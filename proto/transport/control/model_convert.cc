#include "proto/transport/control/model_convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/transport/control/model_fields.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

bool IsZero(const std::string& bytes) { return bytes.find_first_not_of('\0') == std::string::npos; }

absl::Status CheckBytes(const std::string& at, const std::vector<TensorData>& tensors,
                        ZeroTensors zeros) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorData& tensor = tensors[i];
    const uint64_t bytes = static_cast<uint64_t>(tensor.shape.elements()) * SizeOf(tensor.dtype);
    const bool is_left_out = zeros == ZeroTensors::kLeftOut && tensor.bytes.empty();
    if (tensor.bytes.size() == bytes || is_left_out) continue;
    return absl::InvalidArgumentError(absl::StrCat(at, "[", i, "].data: has ", tensor.bytes.size(),
                                                   " bytes, its shape ", tensor.shape.ToString(),
                                                   " needs ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace

proto::Model ToProto(const ModelSpec& model) { return WriteFields<proto::Model>(model); }

absl::StatusOr<ModelSpec> FromProto(proto::Model message) {
  RUNNEL_ASSIGN_OR_RETURN(ModelSpec model, ReadFields<ModelSpec>(message, {"model"}));
  RUNNEL_RETURN_IF_ERROR(InferShapes(model, 1).status());
  return model;
}

proto::Plan ToProto(const Plan& plan) { return WriteFields<proto::Plan>(plan); }

absl::StatusOr<Plan> FromProto(proto::Plan message) {
  RUNNEL_ASSIGN_OR_RETURN(Plan plan, ReadFields<Plan>(message, {"plan"}));
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    RUNNEL_RETURN_IF_ERROR(CheckRange(absl::StrCat("plan.stages[", i, "].last_layer"),
                                      plan.stages[i].last_layer, plan.stages[i].first_layer,
                                      kMaxLayers - 1));
  }
  const auto links = static_cast<int64_t>(plan.stages.size()) - 1;
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("plan.links", static_cast<int64_t>(plan.links.size()), links, links));
  return plan;
}

proto::ModelState ToProto(ModelState state, ZeroTensors zeros) {
  for (LayerState& layer : state.layers) {
    for (std::vector<TensorData>* tensors : {&layer.tensors, &layer.slots}) {
      for (TensorData& tensor : *tensors) {
        if (zeros == ZeroTensors::kLeftOut && IsZero(tensor.bytes)) tensor.bytes.clear();
      }
    }
  }
  return WriteFields<proto::ModelState>(std::move(state));
}

absl::StatusOr<ModelState> FromProto(proto::ModelState message, ZeroTensors zeros) {
  RUNNEL_ASSIGN_OR_RETURN(ModelState state, ReadFields<ModelState>(message, {"state"}));
  int next_layer = 0;
  for (size_t i = 0; i < state.layers.size(); ++i) {
    const LayerState& layer = state.layers[i];
    const std::string at = absl::StrCat("state.layers[", i, "]");
    RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".layer", layer.layer, next_layer, kMaxLayers - 1));
    next_layer = layer.layer + 1;
    RUNNEL_RETURN_IF_ERROR(CheckBytes(at + ".tensors", layer.tensors, zeros));
    RUNNEL_RETURN_IF_ERROR(CheckBytes(at + ".slots", layer.slots, zeros));
  }
  return state;
}

proto::TrainingChange ToProto(const TrainingChange& change) {
  return WriteFields<proto::TrainingChange>(change);
}

absl::StatusOr<std::vector<TrainingChange>> FromProto(
    const std::string& field, google::protobuf::RepeatedPtrField<proto::TrainingChange> messages) {
  RUNNEL_RETURN_IF_ERROR(CheckCount(field, messages.size(), 0, kMaxTrainingChanges));
  std::vector<TrainingChange> changes;
  for (proto::TrainingChange& message : messages) {
    // Of until 2026-11-25.
    const GradientBits bits = {message.gradient_bits_conv(), message.gradient_bits_linear()};
    RUNNEL_ASSIGN_OR_RETURN(TrainingChange change, ReadFields<TrainingChange>(message, {field}));
    if (change.dial.empty()) change = ChangeOfGradientBits(change.from_step, bits);
    changes.push_back(std::move(change));
  }
  RUNNEL_RETURN_IF_ERROR(CheckNamed(field, CheckTrainingChanges(changes)));
  return changes;
}

}  // namespace runnel
